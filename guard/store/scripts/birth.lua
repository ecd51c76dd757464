-- Replace the identity record of the label store, if it is still what was read.
-- KEYS: the record.
-- ARGV: what was read, empty for no record or a key of another type; the new record.
local raw = redis.pcall('GET', KEYS[1])
if type(raw) ~= 'string' then raw = '' end
if raw ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
