-- Stage a candidate and return everything the gate must know of it, in one step.
-- KEYS: candidate, nonce, token for the target class, token for the fallback class, presented
--       token, quarantine, sources of the session, each item, trust of the principal, trust of
--       each source that the evidence names.
-- ARGV: lifetime (ms), name of the target's token key, name of the fallback's, whether a token was
--       presented, number of items, then field and value pairs of the candidate.
-- Returns: staged (0 where the id was staged before), nonce, classes of the items, sum of their
--          versions, each token (its state; where there is one, when it expires and its MAC), quarantined,
--          worst trust.
local now = redis.call('TIME')
local milliseconds = now[1] * 1000 + math.floor(now[2] / 1000)

local function token_state(key, name, presented)
  if presented then
    local bound = redis.call('GET', KEYS[5])
    if bound ~= name then return 'other' end
  end
  local token = redis.call('HMGET', key, 'expires', 'used', 'mac')
  if not token[1] then return 'none' end
  local state = 'valid'
  if token[2] == '1' then state = 'used'
  elseif (tonumber(token[1]) or 0) <= milliseconds then state = 'expired' end
  return state .. ' ' .. token[1] .. ' ' .. (token[3] or '')
end

local staged = redis.call('HSETNX', KEYS[1], 'fate', 'staged')
if staged == 1 then
  redis.call('HSET', KEYS[1], 'at', milliseconds, unpack(ARGV, 6))
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
local classes, versions, first = {}, 0, 8 + ARGV[5]
for i = 8, first - 1 do
  local item = redis.call('HMGET', KEYS[i], 'class', 'version')
  if item[1] then classes[#classes + 1] = item[1] end
  versions = versions + tonumber(item[2] or '0')
end
local worst = 0
for i = first, #KEYS do
  worst = math.max(worst, (trust_of(KEYS[i], milliseconds)))
end
-- The text may come from any source that the session has read.
for _, source in ipairs(redis.call('SMEMBERS', KEYS[7])) do
  if source ~= '+' then
    worst = math.max(worst, (trust_of(source, milliseconds)))
  end
end
return {
  staged,
  redis.call('GET', KEYS[2]) or '',
  table.concat(classes),
  versions,
  token_state(KEYS[3], ARGV[2], ARGV[4] == '1'),
  token_state(KEYS[4], ARGV[3], ARGV[4] == '1'),
  redis.call('EXISTS', KEYS[6]),
  worst,
}
