-- Bind the nonce of a proposed update to its text, so that a later write cannot change it.
-- KEYS: nonce.  ARGV: text digest, lifetime (ms).
-- Returns: 1, or 0 where the nonce was used or is bound to another text.
local nonce = redis.call('GET', KEYS[1])
if nonce and nonce ~= 's:' .. ARGV[1] then return 0 end
redis.call('SET', KEYS[1], 's:' .. ARGV[1], 'PX', ARGV[2])
return 1
