-- Commit a staged candidate: every check that another writer could have overtaken is made again.
-- KEYS: candidate, nonce, token, candidates in flight, quarantine, sources of the session, each
--       item, trust keys.
-- ARGV: id, digest, text digest, receipt of the audit line, class, tainted, uses a token,
--       sum of the versions of the items when staged, lifetime of the nonce (ms), lifetime of the
--       record (ms), owner, number of items.
-- Returns: an empty text, or the reason of the refusal.
local now = redis.call('TIME')
local milliseconds = now[1] * 1000 + math.floor(now[2] / 1000)
local staged = redis.call('HMGET', KEYS[1], 'fate', 'digest', 'receipt')
if staged[1] ~= 'staged' then return 'stage_lost' end
if staged[2] ~= ARGV[2] then return 'content_hash_mismatch' end
if staged[3] ~= ARGV[4] then return 'audit_mismatch' end
local nonce = redis.call('GET', KEYS[2])
if nonce then
  if string.sub(nonce, 1, 1) == 'u' then return 'nonce_replayed' end
  if string.sub(nonce, 3) ~= ARGV[3] then return 'content_hash_mismatch' end
end
if redis.call('EXISTS', KEYS[5]) == 1 then return 'partition_quarantined' end
local first, versions, previous, low = 7 + ARGV[12], 0, {}, ARGV[5] == '4'
for i = 7, first - 1 do
  local item = redis.call('HMGET', KEYS[i], 'class', 'version')
  previous[i] = item[1] or ''
  low = low and (previous[i] == '' or previous[i] == '4')
  versions = versions + tonumber(item[2] or '0')
end
if versions ~= tonumber(ARGV[8]) then return 'write_conflict' end
-- An untrusted source writes the lowest class only, and over items of the lowest class only, unless
-- a token, which is checked below, is for exactly this content.
if ARGV[7] ~= '1' and not low then
  for i = first, #KEYS do
    if trust_of(KEYS[i], milliseconds) == 2 then return 'source_untrusted' end
  end
  for _, source in ipairs(redis.call('SMEMBERS', KEYS[6])) do
    if source ~= '+' and trust_of(source, milliseconds) == 2 then
      return 'source_untrusted'
    end
  end
end
if ARGV[7] == '1' then
  local token = redis.call('HMGET', KEYS[3], 'expires', 'used')
  if not token[1] then return 'promotion_token_missing' end
  if token[2] == '1' then return 'promotion_token_replayed' end
  if tonumber(token[1]) <= milliseconds then return 'promotion_token_expired' end
  redis.call('HSET', KEYS[3], 'used', '1')
end
redis.call('SET', KEYS[2], 'u:' .. ARGV[3], 'PX', ARGV[9])
for i = 7, first - 1 do
  redis.call('HSET', KEYS[i], 'class', ARGV[5], 'tainted', ARGV[6], 'candidate', ARGV[1],
    'previous', previous[i])
  redis.call('HINCRBY', KEYS[i], 'version', 1)
end
redis.call('HSET', KEYS[1], 'fate', 'committed', 'class', ARGV[5], 'tainted', ARGV[6],
  'committed_at', milliseconds, 'owner', ARGV[11])
redis.call('PEXPIRE', KEYS[1], ARGV[10])
redis.call('ZADD', KEYS[4], milliseconds, ARGV[1])
return ''
