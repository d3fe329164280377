-- Prolongs leases. A slot that Redis has forgotten meanwhile is taken again: its call is still running.
-- ARGV: lease time (microseconds), then of each key 'slot' or 'purse', lease. KEYS: sorted sets of expiries.
local lifetime = tonumber(ARGV[1])
for i, key in ipairs(KEYS) do
    local lease = ARGV[2 * i + 1]
    if ARGV[2 * i] == 'slot' then
        redis.call('ZADD', key, now + lifetime, lease)
        redis.call('PEXPIRE', key, math.ceil(lifetime / 1000))
    else
        redis.call('ZADD', key, 'XX', now + lifetime, lease)
    end
end
return 0
