-- Mark an attempted call executed or refused in its session's and its principal's window.
-- and store label records: of what its result contains, or of what it saved.
-- KEYS: session window, principal window, full mark, source counts, then the areas of LABELS.
-- ARGV: role, session ttl (ms), principal ttl (ms), 'executed' or 'refused', then those of LABELS.

-- The same arithmetic as Trajectory.append in guard/core/trajectory.py.
local function append(window, role)
  for i, pair in ipairs(PAIRS) do
    if window[AT.last] == pair[1] and role == pair[2] then add(window, AT.pairs + i - 1, 1) end
  end
  add(window, AT.executed + role, 1)
  if window[AT.first] == NO_ROLE then window[AT.first] = role end
  window[AT.last] = role
  if role == ROLE.recall then
    add(window, AT.recall_chain, 1)
    window[AT.max_recall_chain] = math.max(window[AT.max_recall_chain], window[AT.recall_chain])
  else
    window[AT.recall_chain] = 0
  end
  if role == ROLE.send then
    if window[AT.executed + ROLE.recall] > 0 then window[AT.recall_before_send] = 1 end
    if window[AT.executed + ROLE.save] > 0 then window[AT.save_before_send] = 1 end
  end
end

-- A completion may find no trace of its attempt (the key expired meanwhile) and counters may be
-- saturated.  Either way attempted >= executed + refused, so what is possible never falls below
-- what was executed.
local function settle(window, role)
  local executed = window[AT.executed + role]
  local refused = math.min(window[AT.refused + role], MAX - executed)
  window[AT.refused + role] = refused
  window[AT.attempted + role] = math.max(window[AT.attempted + role], executed + refused)
end

local role = ROLE[ARGV[1]]
if not role then return redis.error_reply('GUARDROLE unknown role') end
local outcome = ARGV[4]
if outcome ~= 'executed' and outcome ~= 'refused' then
  return redis.error_reply('GUARDROLE unknown outcome')
end
local windows = {}
for i = 1, 2 do
  windows[i] = read(KEYS[i])
  if not windows[i] then return redis.error_reply('GUARDSTATE unreadable window ' .. KEYS[i]) end
end
for i = 1, 2 do
  local window = {struct.unpack(FORMAT, windows[i])}
  if outcome == 'executed' then
    append(window, role)
    window[AT.refused_in_a_row] = 0
  else
    add(window, AT.refused + role, 1)
    add(window, AT.refused_in_a_row, 1)
  end
  settle(window, role)
  write(KEYS[i], pack(window), ARGV[1 + i])
end
store_labels(KEYS[3], KEYS[4], 4, ARGV[3], 5)
return 1
