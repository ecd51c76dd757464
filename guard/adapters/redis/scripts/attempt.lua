-- Append a call as attempted to its session's and its principal's window, take the grant for it
-- if there is one, and read label records.
-- KEYS: session window, principal window, full mark, grant, then the areas to look in.
-- ARGV: index of the role, session ttl (ms), principal ttl (ms), results released unlabelled so far,
-- then two bytes per area with the number of its fields (32768 more where they are counters, each
-- followed by what is added to it: they outlive the call as long as the principal's window), how many of the last fields are `named`;
-- then the fields of all areas.
-- Returns both windows as they were before the call, packed; the full mark; the grant; one record per
-- field.  The unlabelled marks belong to results released before this call, so they are part of
-- that state.
local role = tonumber(ARGV[1])
if not role or role < 0 or role >= ROLES then return redis.error_reply('GUARDROLE unknown role') end
local now = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local session, principal = checked(KEYS[1], now[1]), checked(KEYS[2], now[2])
if not session or not principal then
  return redis.error_reply('GUARDSTATE unreadable window ' .. KEYS[session and 2 or 1])
end
if ARGV[4] ~= '0' then
  local unlabelled = tonumber(ARGV[4])
  session = add_packed(session, BYTE_unlabelled, unlabelled)
  principal = add_packed(principal, BYTE_unlabelled, unlabelled)
end
local counter = BYTE_attempted + 4 * role
write(KEYS[1], add_packed(session, counter, 1), ARGV[2])
write(KEYS[2], add_packed(principal, counter, 1), ARGV[3])
-- Read and removed in one step: of two retries that race, one gets the grant.
local grant = redis.call('HGET', KEYS[4], 'g')
if grant then redis.call('DEL', KEYS[4]) end
local before = {session, principal, now[3] and 1 or 0, grant}
local areas = #KEYS
if areas == 4 then return before end

-- A record of these may end in names.  Each is looked up in the same area: whether a prompt named it,
-- and which entries of directories are called so.
local function named(key, raw)
  local names = {}
  local at = NAMES_AT + 1 + (string.byte(raw, NAMES_AT) or 0)
  local last = #raw
  if string.byte(raw, VERSION_BYTE) == SCOPED then last = last - SCOPE_SIZE end
  while at + NAME_SIZE - 1 <= last do
    local name = string.sub(raw, at, at + NAME_SIZE - 1)
    names[#names + 1] = name .. 'P'
    names[#names + 1] = name .. 'N'
    at = at + NAME_SIZE
  end
  if #names == 0 then return {raw, {}} end
  return {raw, redis.call('HMGET', key, unpack(names))}
end

local counts = ARGV[5]
local place, filled = 7, 4
for k = 5, areas do
  local key = KEYS[k]
  local count = string.byte(counts, 2 * k - 9) * 256 + string.byte(counts, 2 * k - 8)
  local counts_up = count >= 32768
  if counts_up then count = count - 32768 end
  local last = place + count - 1
  if counts_up then
    for i = 1, count, 2 do
      before[filled + i] = redis.call('HINCRBY', key, ARGV[place + i - 1], ARGV[place + i])
      before[filled + i + 1] = false
    end
    redis.call('PEXPIRE', key, ARGV[3])
    filled = filled + count
  elseif count == 1 then
    filled = filled + 1
    before[filled] = redis.call('HGET', key, ARGV[place])
  else
    local found = redis.call('HMGET', key, unpack(ARGV, place, last))
    for i = 1, count do before[filled + i] = found[i] end
    filled = filled + count
  end
  place = last + 1
end
for i = filled - tonumber(ARGV[6]) + 1, filled do
  if before[i] then before[i] = named(KEYS[areas], before[i]) end
end
return before
