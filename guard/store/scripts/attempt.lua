-- Append a call as attempted to its session's and its principal's window, take the grant for it
-- if there is one, and read label records.
-- KEYS: session window, principal window, full mark, grant, then the areas to look in, then the
-- pieces of private text and what each receiver has been told, where pieces are looked up.
-- ARGV: index of the role, session ttl (ms), principal ttl (ms), results released unlabelled so far,
-- then two bytes per area with the number of its fields (32768 more where they are counters, each
-- followed by what is added to it: they outlive the call as long as the principal's window), and behind
-- them, where some areas in a row seldom exist, the number of areas before these, theirs, and that of their fields; how many of the last fields are `named`,
-- how many receivers are told; then the fields of all areas, then the pieces.
-- Returns both windows as they were before the call, packed; the full mark; the grant; one record per
-- field; where pieces are looked up, how much of one private unit a receiver has been told, in
-- thousandths.  The unlabelled marks belong to results released before this call, so they are part of
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
if #KEYS == 4 then return before end
local receivers = tonumber(ARGV[7])
local areas = receivers > 0 and #KEYS - receivers - 1 or #KEYS

local counts = ARGV[5]
local place, filled = 8, 4
local byte, call = string.byte, redis.call
local k, seldom, beyond, skipped = 5
if #counts > 2 * (areas - 4) then
  local a, b, c, d, e, f = byte(counts, 2 * areas - 7, 2 * areas - 2)
  seldom, skipped = 5 + a * 256 + b, e * 256 + f
  beyond = seldom + c * 256 + d
end
while k <= areas do
  -- One question costs less than that of a second area that is not there.
  if k == seldom and call('EXISTS', unpack(KEYS, k, beyond - 1)) == 0 then
    for i = 1, skipped do before[filled + i] = false end
    k, place, filled = beyond, place + skipped, filled + skipped
    if k > areas then break end
  end
  local key = KEYS[k]
  local high, low = byte(counts, 2 * k - 9, 2 * k - 8)
  local count = high * 256 + low
  local counts_up = count >= 32768
  if counts_up then count = count - 32768 end
  local last = place + count - 1
  if counts_up then
    for i = 1, count, 2 do
      before[filled + i] = call('HINCRBY', key, ARGV[place + i - 1], ARGV[place + i])
      before[filled + i + 1] = false
    end
    call('PEXPIRE', key, ARGV[3])
    filled = filled + count
  elseif count == 1 then
    filled = filled + 1
    before[filled] = call('HGET', key, ARGV[place])
  else
    local found = call('HMGET', key, unpack(ARGV, place, last))
    for i = 1, count do before[filled + i] = found[i] end
    filled = filled + count
  end
  place, k = last + 1, k + 1
end
-- What only some calls need is defined for them alone: a function is made anew on every call.
if ARGV[6] ~= '0' then
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

  for i = filled - tonumber(ARGV[6]) + 1, filled do
    if before[i] then before[i] = named(KEYS[areas], before[i]) end
  end
end
if receivers > 0 then
  -- Return the values of some fields of a hash; of many in several commands, for the stack's sake.
  local CHUNK = 4000
  local function values_of(key, fields)
    local found = {}
    for first = 1, #fields, CHUNK do
      local last = math.min(first + CHUNK - 1, #fields)
      local some = redis.call('HMGET', key, unpack(fields, first, last))
      for i = 1, last - first + 1 do found[first + i - 1] = some[i] end
    end
    return found
  end

  -- Return which places of which units some pieces are, each once, and the size of each unit.
  local function places_of(pieces)
    local places, seen, sizes = {}, {}, {}
    for _, raw in ipairs(values_of(KEYS[areas + 1], pieces)) do
      for at = 1, raw and #raw - UNIT_SIZE - 2 or 0, UNIT_SIZE + 3 do
        local unit = string.sub(raw, at, at + UNIT_SIZE - 1)
        local size, start, length = string.byte(raw, at + UNIT_SIZE, at + UNIT_SIZE + 2)
        sizes[unit] = size
        for number = start, start + length - 1 do
          local place = unit .. string.char(number)
          if not seen[place] then
            seen[place] = true
            places[#places + 1] = place
          end
        end
      end
    end
    return places, sizes
  end

  -- Tell a receiver some places; return the most that it has been told of a unit, in thousandths.
  -- What it cannot be counted for counts as told.
  local function tell(key, places, sizes)
    if redis.call('HLEN', key) + #places > TOLD_LIMIT then return 1000 end
    local told, new = values_of(key, places), {}
    for i, place in ipairs(places) do
      if not told[i] then
        redis.call('HSET', key, place, '1')
        local unit = string.sub(place, 1, UNIT_SIZE)
        new[unit] = (new[unit] or 0) + 1
      end
    end
    redis.call('PEXPIRE', key, ARGV[3])
    local most = 0
    for unit, size in pairs(sizes) do
      local count = redis.call('HINCRBY', key, unit, new[unit] or 0)
      most = math.max(most, math.floor(1000 * count / size))
    end
    return most
  end

  local places, sizes = places_of({unpack(ARGV, place)})
  local most = 0
  for k = areas + 2, #places > 0 and #KEYS or 0 do
    most = math.max(most, tell(KEYS[k], places, sizes))
  end
  before[filled + 1] = most
end
return before
