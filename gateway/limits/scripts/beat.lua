-- This process lives. KEYS: who was heard of, and when. ARGV: its name, microseconds after which one counts as gone.
-- Answer: how many live.
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[2] / 1000))
return redis.call('ZCARD', KEYS[1])
