-- Issue a promotion token: for one content, class and principal, until it expires, once.
-- KEYS: token by content, token by secret.  ARGV: name of the first key, lifetime (ms), issuer.
local now = redis.call('TIME')
local expires = now[1] * 1000 + math.floor(now[2] / 1000) + tonumber(ARGV[2])
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'expires', expires, 'used', '0', 'issuer', ARGV[3])
redis.call('PEXPIRE', KEYS[1], tonumber(ARGV[2]) * 4)
redis.call('SET', KEYS[2], ARGV[1], 'PX', tonumber(ARGV[2]) * 4)
return expires
