-- Before every script. Microseconds since November 2023 on the clock of Redis: small enough for exact fractions.
local time = redis.call('TIME')
local now = (time[1] - 1700000000) * 1000000 + time[2]

-- A number as HINCRBY takes it: from 10^17 on Lua would write an exponent.
local function whole(number)
    return string.format('%.0f', number)
end
