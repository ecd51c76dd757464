-- Refuse a candidate, and lower the trust in who is to blame for it.
-- KEYS: candidate, candidates for review, trust keys of who is to blame (may be none).
-- ARGV: id, reasons, lifetime (ms), anomalies until DEGRADED, anomalies until UNTRUSTED.
-- Returns: the worst trust afterwards.
local now = redis.call('TIME')
local milliseconds = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('HSET', KEYS[1], 'fate', 'refused', 'reasons', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('ZADD', KEYS[2], milliseconds, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', milliseconds - tonumber(ARGV[3]))
local worst = 0
for i = 3, #KEYS do
  local anomalies = redis.call('HINCRBY', KEYS[i], 'anomalies', 1)
  local level = tonumber(redis.call('HGET', KEYS[i], 'level') or '0')
  if anomalies >= tonumber(ARGV[5]) then level = math.max(level, 2)
  elseif anomalies >= tonumber(ARGV[4]) then level = math.max(level, 1) end
  redis.call('HSET', KEYS[i], 'level', level, 'changed', milliseconds)
  worst = math.max(worst, level)
end
return worst
