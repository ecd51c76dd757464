-- One more committed item of a principal: bring the evidence of its subjects up to date.
-- Prepended to settle.lua.  Only the item's own subjects are touched.
-- keys: evidence of the principal, findings, trust of the principal.
-- args: gain, loss, alarm, subjects kept, time that raises trust by one level (ms; 0 where an alarm
--       does not lower it), lifetime (ms), principal, then the subjects.
-- Returns: the subjects that reached the alarm with this item.
local function drift(keys, args)
  local gain, loss, alarm = tonumber(args[1]), tonumber(args[2]), tonumber(args[3])
  local item = redis.call('HINCRBY', keys[1], '#', 1)
  redis.call('PEXPIRE', keys[1], args[6])

  local function read(field)
    local raw = redis.call('HGET', keys[1], field)
    if not raw then return 0, item - 1 end
    local weight, at = string.match(raw, '^(.-) (%d+)$')
    return tonumber(weight), tonumber(at)
  end

  local hit = {}
  for i = 8, #args do
    local field = 's' .. args[i]
    local before, at = read(field)
    local decayed = math.max(before - loss * (item - at - 1), 0)
    redis.call('HSET', keys[1], field, string.format('%.6f %d', decayed + gain, item))
    if decayed < alarm and decayed + gain >= alarm then hit[#hit + 1] = args[i] end
  end
  local kept = tonumber(args[4])
  if redis.call('HLEN', keys[1]) > 2 * kept then
    local all, subjects = redis.call('HGETALL', keys[1]), {}
    for i = 1, #all, 2 do
      if all[i] ~= '#' then
        local weight, at = read(all[i])
        subjects[#subjects + 1] = {all[i], weight - loss * (item - at)}
      end
    end
    table.sort(subjects, function(a, b) return a[2] > b[2] end)
    for i, subject in ipairs(subjects) do
      if i > kept or subject[2] <= 0 then redis.call('HDEL', keys[1], subject[1]) end
    end
  end
  local now = redis.call('TIME')
  for _, subject in ipairs(hit) do
    redis.call('ZADD', keys[2], now[1] * 1000, args[7] .. '\n' .. subject)
  end
  redis.call('ZREMRANGEBYRANK', keys[2], 0, -1001)
  local period = tonumber(args[5])
  if #hit > 0 and period > 0 then
    local milliseconds = now[1] * 1000
    local level = math.max((trust_of(keys[3], milliseconds)), 1)
    redis.call('HSET', keys[3], 'level', level, 'changed', milliseconds, 'period', period)
  end
  return hit
end
