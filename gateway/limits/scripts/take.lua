-- Takes all demands or none; memory.py says the same in Python.
-- ARGV: 'take' or 'peek', lease, period, lease time (microseconds), then of each demand
--   'rate' capacity cost | 'slot' capacity | 'purse' capacity cost floor seconds
-- KEYS: one of each demand, two of a purse: what is spent (hash), who has reserved until when (sorted set).
-- Answer: position of the refused one (0: none), microseconds to wait (-1: for ever), of each what is left, what was taken.
local lease, period, lifetime = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local SLACK = 1

local look, take = {}, {}

function look.rate(d)
    local cost, unit = tonumber(d.args[1]), period / d.capacity
    local missing = math.max(tonumber(redis.call('GET', d.key) or now) - now, 0)
    local wait = missing + cost * unit - period
    if cost > d.capacity then
        d.wait = math.huge
    elseif wait > SLACK then
        d.wait = wait
    end
    d.taken, d.missing = cost, missing + cost * unit
    d.left = math.min(d.capacity, math.max(0, math.floor((period - missing + SLACK) / unit)))
    d.after = math.max(0, math.floor((period - d.missing + SLACK) / unit))
end

function take.rate(d)
    redis.call('SET', d.key, now + d.missing, 'PX', math.ceil(d.missing / 1000) + 1)
end

function look.slot(d)
    redis.call('ZREMRANGEBYSCORE', d.key, '-inf', now)
    d.left = math.max(0, d.capacity - redis.call('ZCARD', d.key))
    if d.left == 0 then d.wait = 0 end
    d.taken, d.after = 1, d.left - 1
end

function take.slot(d)
    redis.call('ZADD', d.key, now + lifetime, lease)
    redis.call('PEXPIRE', d.key, math.ceil(lifetime / 1000))
end

function look.purse(d)
    for _, gone in ipairs(redis.call('ZRANGEBYSCORE', d.held, '-inf', now)) do
        local amount = redis.call('HGET', d.key, ':' .. gone)
        if amount then redis.call('HINCRBY', d.key, 'reserved', whole(0 - amount)) end
        redis.call('HDEL', d.key, ':' .. gone)
        redis.call('ZREM', d.held, gone)
    end
    local stored = redis.call('HMGET', d.key, 'spent', 'reserved')
    local floor = tonumber(d.args[2])
    d.spent = tonumber(stored[1] or floor)
    -- Without anybody who holds a reservation there is none, whatever an eviction has left behind.
    d.reserved = redis.call('ZCARD', d.held) > 0 and math.max(0, tonumber(stored[2] or 0)) or 0
    d.left = math.max(0, d.capacity - math.max(d.spent, floor) - d.reserved)
    if d.left == 0 then d.wait = 0 end
    d.taken = math.min(tonumber(d.args[1]), d.left)
    d.after = d.left - d.taken
end

function take.purse(d)
    local spent, reserved, taken = whole(d.spent), whole(d.reserved + d.taken), whole(d.taken)
    redis.call('HSET', d.key, 'spent', spent, 'reserved', reserved, ':' .. lease, taken)
    redis.call('ZADD', d.held, now + lifetime, lease)
    redis.call('EXPIRE', d.key, d.args[3])
    redis.call('EXPIRE', d.held, d.args[3])
end

local more = { rate = 1, slot = 0, purse = 3 }
local demands, refused, longest = {}, 0, -1
local key, arg = 1, 5
while arg <= #ARGV do
    local kind = ARGV[arg]
    local d = { kind = kind, key = KEYS[key], held = KEYS[key + 1], capacity = tonumber(ARGV[arg + 1]) }
    d.args = { ARGV[arg + 2], ARGV[arg + 3], ARGV[arg + 4] }
    look[kind](d)
    demands[#demands + 1] = d
    if d.wait and d.wait > longest then refused, longest = #demands, d.wait end
    key = key + (kind == 'purse' and 2 or 1)
    arg = arg + 2 + more[kind]
end

local taking = refused == 0 and ARGV[1] == 'take'
local answer = { refused, longest == math.huge and -1 or math.ceil(math.max(longest, 0)) }
for i, d in ipairs(demands) do
    if taking then take[d.kind](d) end
    answer[2 + i] = taking and d.after or d.left
    answer[2 + #demands + i] = taking and d.taken or 0
end
return answer
