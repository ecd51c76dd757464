-- KEYS: a record of trust.  Returns: its level now.
local now = redis.call('TIME')
return (trust_of(KEYS[1], now[1] * 1000 + math.floor(now[2] / 1000)))
