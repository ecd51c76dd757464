-- Change hash fields, each only where it is as it was, or as it is to be.
-- KEYS: one per change.
-- ARGV: per change: the field, '1' where it is there before, its value before, '1' where it is there
-- after, its value after, milliseconds that a key lives which this makes anew (0: for good).
-- Returns the numbers (from 1) of the changes whose field is neither: somebody else has changed it.
local others = {}
for i = 1, #KEYS do
  local at = 6 * (i - 1)
  local field = ARGV[at + 1]
  local before = ARGV[at + 2] == '1' and ARGV[at + 3] or false
  local after = ARGV[at + 4] == '1' and ARGV[at + 5] or false
  local now = redis.call('HGET', KEYS[i], field)
  if now == after then
    -- Done before.
  elseif now ~= before then
    others[#others + 1] = i
  elseif after then
    local fresh = redis.call('EXISTS', KEYS[i]) == 0
    redis.call('HSET', KEYS[i], field, after)
    if fresh and ARGV[at + 6] ~= '0' then redis.call('PEXPIRE', KEYS[i], ARGV[at + 6]) end
  else
    redis.call('HDEL', KEYS[i], field)
  end
end
return others
