-- Append a call as attempted to its session's and its principal's window, take the grant for it
-- if there is one, and read label records.
-- KEYS: session window, principal window, full mark, grant, then the areas to look in.
-- ARGV: role, session ttl (ms), principal ttl (ms), results released unlabelled so far, names in a
-- chained record begin behind this byte, bytes of a name; then for each area: '1' where chained,
-- number of fields, the fields.
-- Returns both windows as they were before the call, packed; the full mark; the grant; one list per
-- area.  The unlabelled marks belong to results released before this call, so they are part of
-- that state.
local role = ROLE[ARGV[1]]
if not role then return redis.error_reply('GUARDROLE unknown role') end
local windows = {}
for i = 1, 2 do
  windows[i] = read(KEYS[i])
  if not windows[i] then return redis.error_reply('GUARDSTATE unreadable window ' .. KEYS[i]) end
end
local unlabelled = tonumber(ARGV[4])
local before = {}
for i = 1, 2 do
  before[i] = windows[i]
  if unlabelled > 0 then before[i] = add_packed(before[i], BYTE.unlabelled, unlabelled) end
  write(KEYS[i], add_packed(before[i], BYTE.attempted + 4 * role, 1), ARGV[1 + i])
end
before[3] = redis.call('EXISTS', KEYS[3])
-- Read and removed in one step: of two retries that race, one gets the grant.
before[4] = redis.call('HGET', KEYS[4], 'g')
if before[4] then redis.call('DEL', KEYS[4]) end

-- A chained record ends in names; each is looked up in the same area, marked as named in a prompt.
local function named(key, raw, from, size)
  if not raw then return false end
  local names = {}
  local at = from + 1 + (string.byte(raw, from) or 0)
  while at + size - 1 <= #raw do
    names[#names + 1] = string.sub(raw, at, at + size - 1) .. 'P'
    at = at + size
  end
  if #names == 0 then return false end
  return {raw, redis.call('HMGET', key, unpack(names))}
end

local from, size = tonumber(ARGV[5]), tonumber(ARGV[6])
local place = 7
for k = 5, #KEYS do
  local chained, count = ARGV[place] == '1', tonumber(ARGV[place + 1])
  local found = redis.call('HMGET', KEYS[k], unpack(ARGV, place + 2, place + 1 + count))
  if chained then
    for i = 1, count do found[i] = named(KEYS[k], found[i], from, size) end
  end
  before[k] = found
  place = place + 2 + count
end
return before
