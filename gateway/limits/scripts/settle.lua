-- Gives back or charges on top, frees slots, charges purses.
-- ARGV: lease, period (microseconds), 'sure' or 'unsure', then of each demand
--   'rate' capacity units-on-top | 'slot' | 'purse' floor seconds used
-- KEYS: as for take.lua. 'unsure': this may have been done before, so only what is still reserved is charged.
local lease, period, sure = ARGV[1], tonumber(ARGV[2]), ARGV[3] == 'sure'

local settle = {}

function settle.rate(key, held, capacity, units)
    local missing = math.max(tonumber(redis.call('GET', key) or now) - now, 0) + units * period / capacity
    if missing > 0 then
        redis.call('SET', key, now + missing, 'PX', math.ceil(missing / 1000) + 1)
    else
        redis.call('DEL', key)
    end
end

function settle.slot(key)
    redis.call('ZREM', key, lease)
end

function settle.purse(key, held, floor, seconds, used)
    local amount = redis.call('HGET', key, ':' .. lease)
    if amount then
        redis.call('HDEL', key, ':' .. lease)
        redis.call('HINCRBY', key, 'reserved', whole(0 - amount))
        redis.call('ZREM', held, lease)
    end
    if amount or sure then
        redis.call('HSETNX', key, 'spent', floor)
        redis.call('HINCRBY', key, 'spent', used)
        redis.call('EXPIRE', key, seconds)
    end
end

local more = { rate = 2, slot = 0, purse = 3 }
local key, arg = 1, 4
while arg <= #ARGV do
    local kind = ARGV[arg]
    settle[kind](KEYS[key], KEYS[key + 1], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3])
    key = key + (kind == 'purse' and 2 or 1)
    arg = arg + 1 + more[kind]
end
return 0
