-- Refuse a candidate, and lower the trust in who is to blame for it.
-- KEYS: candidate, candidates for review, sources of the session, trust of the principal, trust
--       of the sources that the evidence names.
-- ARGV: id, reasons, lifetime (ms), anomalies until DEGRADED, anomalies until UNTRUSTED, whether
--       the caller is to blame, whether what it has read is, whether the text can only have come
--       from the sources that the evidence names, time that raises trust by one level (ms).
-- Returns: the worst trust afterwards.
local now = redis.call('TIME')
local milliseconds = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('HSET', KEYS[1], 'fate', 'refused', 'reasons', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('ZADD', KEYS[2], milliseconds, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', milliseconds - tonumber(ARGV[3]))
local blamed = {}
if ARGV[7] == '1' then
  -- Only the one source that the text can have come from is blamed: a page that quotes another
  -- must not take its standing.  Of several, none is named, and the principal answers.
  local possible, count, only = {}, 0, nil
  local function name(source)
    if not possible[source] then possible[source], count, only = true, count + 1, source end
  end
  for i = 5, #KEYS do name(KEYS[i]) end
  if ARGV[8] ~= '1' then
    for _, source in ipairs(redis.call('SMEMBERS', KEYS[3])) do name(source) end
  end
  if count == 1 and only ~= '+' then blamed[1] = only end
end
if ARGV[6] == '1' or (ARGV[7] == '1' and #blamed == 0) then blamed[#blamed + 1] = KEYS[4] end
local worst = 0
for _, key in ipairs(blamed) do
  local level, passed = trust_of(key, milliseconds)
  local anomalies = tonumber(redis.call('HGET', key, 'anomalies') or '0')
  if passed > 0 then
    -- As many are forgiven as the levels that time has given back.
    local most = 0
    if level == 1 then most = math.max(tonumber(ARGV[4]), 1) end
    anomalies = math.min(anomalies, most)
  end
  anomalies = anomalies + 1
  redis.call('HSET', key, 'anomalies', anomalies)
  if anomalies >= tonumber(ARGV[5]) then level = math.max(level, 2)
  elseif anomalies >= tonumber(ARGV[4]) then level = math.max(level, 1) end
  redis.call('HSET', key, 'level', level, 'changed', milliseconds, 'period', ARGV[9])
  worst = math.max(worst, level)
end
return worst
