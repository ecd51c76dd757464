-- Issue a promotion token: for one content, class and principal, until it expires, once.
-- KEYS: token by content, token by secret.
-- ARGV: name of the first key, lifetime (ms), issuer, when it expires (ms), MAC over all it is for.
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'expires', ARGV[4], 'used', '0', 'issuer', ARGV[3], 'mac', ARGV[5])
redis.call('PEXPIRE', KEYS[1], tonumber(ARGV[2]) * 4)
redis.call('SET', KEYS[2], ARGV[1], 'PX', tonumber(ARGV[2]) * 4)
return 1
