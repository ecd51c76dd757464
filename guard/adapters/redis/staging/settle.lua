-- Say what became of a committed candidate.
-- KEYS: candidate, candidates in flight, candidates for review, item, then those of drift.lua.
-- ARGV: id, fate (acknowledged, failed, unknown or abandoned), lifetime (ms), then those of
--       drift.lua where drift is watched.
-- Returns: the subjects that were found to drift; nothing where it is not in flight any more.
local fate = redis.call('HGET', KEYS[1], 'fate')
if fate ~= 'committed' and fate ~= 'unknown' then return {} end
local now = redis.call('TIME')
redis.call('HSET', KEYS[1], 'fate', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
-- A write that the store did not take must not leave its class behind: the next one would not
-- count as a raise.
if ARGV[2] == 'failed' or ARGV[2] == 'abandoned' then
  if redis.call('HGET', KEYS[4], 'candidate') == ARGV[1] then
    local previous = redis.call('HGET', KEYS[1], 'previous')
    if previous and previous ~= '' then redis.call('HSET', KEYS[4], 'class', previous)
    else redis.call('HDEL', KEYS[4], 'class') end
  end
end
redis.call('ZREM', KEYS[2], ARGV[1])
if ARGV[2] == 'unknown' then
  redis.call('ZADD', KEYS[3], now[1] * 1000 + math.floor(now[2] / 1000), ARGV[1])
else
  redis.call('ZREM', KEYS[3], ARGV[1])
end
if #ARGV > 3 and ARGV[2] == 'acknowledged' then
  return drift({KEYS[5], KEYS[6], KEYS[7]}, {unpack(ARGV, 4)})
end
return {}
