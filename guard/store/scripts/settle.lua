-- Say what became of a committed candidate.
-- KEYS: candidate, candidates in flight, those of drift.lua, then each item.
-- ARGV: id, fate (acknowledged, failed, unknown or abandoned), lifetime (ms), then those of
--       drift.lua where drift is watched.
-- Returns: the subjects that were found to drift; nothing where it is not in flight any more.
local fate = redis.call('HGET', KEYS[1], 'fate')
if fate ~= 'committed' and fate ~= 'unknown' then return {} end
redis.call('HSET', KEYS[1], 'fate', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
-- A write that the store did not take must not leave its class behind: the next one would not
-- count as a raise.
if ARGV[2] == 'failed' or ARGV[2] == 'abandoned' then
  for i = 6, #KEYS do
    local item = redis.call('HMGET', KEYS[i], 'candidate', 'previous')
    if item[1] == ARGV[1] then
      if item[2] and item[2] ~= '' then redis.call('HSET', KEYS[i], 'class', item[2])
      else redis.call('HDEL', KEYS[i], 'class') end
    end
  end
end
-- A write of unknown fate is looked after until its store has told.
if ARGV[2] ~= 'unknown' then redis.call('ZREM', KEYS[2], ARGV[1]) end
if #ARGV > 3 and ARGV[2] == 'acknowledged' then
  return drift({KEYS[3], KEYS[4], KEYS[5]}, {unpack(ARGV, 4)})
end
return {}
