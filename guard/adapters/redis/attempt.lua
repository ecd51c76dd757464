-- Append a call as attempted to its session's and its principal's window.
-- KEYS: session window, principal window.
-- ARGV: role, session ttl (ms), principal ttl (ms), results released unlabelled so far.
-- Returns both windows as they were before the call, packed.  The unlabelled marks belong to
-- results released before this call, so they are part of that state.
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
return before
