-- Remember which sources a session has read from.
-- KEYS: sources of the session.  ARGV: lifetime (ms), most sources, then their trust keys.
-- A session that has read from more has no known source: a mark says so.
for i = 3, #ARGV do
  if redis.call('SCARD', KEYS[1]) < tonumber(ARGV[2]) then redis.call('SADD', KEYS[1], ARGV[i])
  else redis.call('SADD', KEYS[1], '+') end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
