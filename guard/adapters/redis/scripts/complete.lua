-- Mark an attempted call executed or refused in its session's and its principal's window,
-- and store label records: of what its result contains, or of what it saved.
-- KEYS: session window, principal window, full mark, source counts, then the areas of LABELS.
-- ARGV: index of the role, session ttl (ms), principal ttl (ms), 'executed' or 'refused', then those
-- of LABELS.

-- The same arithmetic as Trajectory.append in guard/core/trajectory.py.
local function append(window, role)
  local last = window[AT_last]
  for i, pair in ipairs(PAIRS) do
    if last == pair[1] and role == pair[2] then add(window, AT_pairs + i - 1, 1) end
  end
  add(window, AT_executed + role, 1)
  if window[AT_first] == NO_ROLE then window[AT_first] = role end
  window[AT_last] = role
  if role == ROLE_recall then
    add(window, AT_recall_chain, 1)
    window[AT_max_recall_chain] = math.max(window[AT_max_recall_chain], window[AT_recall_chain])
  else
    window[AT_recall_chain] = 0
  end
  if role == ROLE_send then
    if window[AT_executed + ROLE_recall] > 0 then window[AT_recall_before_send] = 1 end
    if window[AT_executed + ROLE_save] > 0 then window[AT_save_before_send] = 1 end
  end
end

-- A completion may find no trace of its attempt (the key expired meanwhile) and counters may be
-- saturated.  Either way attempted >= executed + refused, so what is possible never falls below
-- what was executed.
local function settle(window, role)
  local executed = window[AT_executed + role]
  local refused = math.min(window[AT_refused + role], MAX - executed)
  window[AT_refused + role] = refused
  window[AT_attempted + role] = math.max(window[AT_attempted + role], executed + refused)
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
  local window = {struct.unpack(FORMAT, windows[i])}
  if outcome == 'executed' then
    append(window, role)
    window[AT_refused_in_a_row] = 0
  else
    add(window, AT_refused + role, 1)
    add(window, AT_refused_in_a_row, 1)
  end
  settle(window, role)
  write(KEYS[i], pack(window), ARGV[1 + i])
end
store_labels(KEYS[3], KEYS[4], 4, ARGV[3], 5)
return 1
