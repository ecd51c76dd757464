-- Mark an attempted call executed or refused in its session's and its principal's window,
-- and store label records: of what its result contains, or of what it saved.
-- KEYS: session window, principal window, full mark, source counts, then the areas of LABELS.
-- ARGV: index of the role, session ttl (ms), principal ttl (ms), 'executed' or 'refused', then those
-- of LABELS.

local function counter(raw, byte)
  return (struct.unpack('>I4', raw, byte))
end

-- The same arithmetic as Trajectory.append in guard/core/trajectory.py.
local function append(raw, role)
  local sub, at = string.sub, BYTE_executed + 4 * role
  local first, last, chain, longest, recalled, saved = struct.unpack(STEPS, raw, BYTE_first)
  local pair = last < NO_ROLE and string.find(PAIRS, string.char(last * ROLES + role), 1, true)
  if pair then raw = add_packed(raw, BYTE_pairs + 4 * (pair - 1), 1) end
  if first == NO_ROLE then first = role end
  if role == ROLE_recall then
    chain = math.min(chain + 1, MAX)
    longest = math.max(longest, chain)
  else
    chain = 0
  end
  if role == ROLE_send then
    if counter(raw, BYTE_executed + 4 * ROLE_recall) > 0 then recalled = 1 end
    if counter(raw, BYTE_executed + 4 * ROLE_save) > 0 then saved = 1 end
  end
  local executed = struct.pack('>I4', math.min(counter(raw, at) + 1, MAX))
  local steps = struct.pack(STEPS, first, role, chain, longest, recalled, saved)
  return sub(raw, 1, at - 1) .. executed .. sub(raw, at + 4, BYTE_first - 1) .. steps
    .. sub(raw, BYTE_first + #steps)
end

-- A completion may find no trace of its attempt (the key expired meanwhile) and counters may be
-- saturated.  Either way attempted >= executed + refused, so what is possible never falls below
-- what was executed.
local function settle(raw, role)
  local executed, refused = counter(raw, BYTE_executed + 4 * role), counter(raw, BYTE_refused + 4 * role)
  local attempted = counter(raw, BYTE_attempted + 4 * role)
  if refused > MAX - executed then
    raw = add_packed(raw, BYTE_refused + 4 * role, MAX - executed - refused)
    refused = MAX - executed
  end
  if attempted < executed + refused then
    raw = add_packed(raw, BYTE_attempted + 4 * role, executed + refused - attempted)
  end
  return raw
end

local role = tonumber(ARGV[1])
if not role or role < 0 or role >= ROLES then return redis.error_reply('GUARDROLE unknown role') end
local outcome = ARGV[4]
if outcome ~= 'executed' and outcome ~= 'refused' then
  return redis.error_reply('GUARDROLE unknown outcome')
end
local windows, now = {}, redis.call('MGET', KEYS[1], KEYS[2])
for i = 1, 2 do
  windows[i] = checked(KEYS[i], now[i])
  if not windows[i] then return redis.error_reply('GUARDSTATE unreadable window ' .. KEYS[i]) end
end
for i = 1, 2 do
  local window = windows[i]
  if outcome == 'executed' then
    window = append(window, role)
    local in_a_row = counter(window, BYTE_refused_in_a_row)
    if in_a_row > 0 then window = add_packed(window, BYTE_refused_in_a_row, -in_a_row) end
  else
    window = add_packed(window, BYTE_refused + 4 * role, 1)
    window = add_packed(window, BYTE_refused_in_a_row, 1)
  end
  write(KEYS[i], settle(window, role), ARGV[1 + i])
end
store_labels(KEYS[3], KEYS[4], 4, ARGV[3], 5)
return 1
