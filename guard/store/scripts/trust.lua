-- Level of trust of a principal or source.  Each period without a refused write raises it by one.
-- Prepended to the scripts that read it.  The record belongs to no session: a new one has it too.
-- Returns: the level, and the periods that have passed.
local DAY = 86400000
local function trust_of(key, milliseconds)
  local found = redis.call('HMGET', key, 'level', 'changed', 'period')
  -- A record without a time keeps its level until a person restores it.
  local level, changed = tonumber(found[1] or '0'), tonumber(found[2] or '') or milliseconds
  local passed = math.max(0, math.floor((milliseconds - changed) / tonumber(found[3] or DAY)))
  return math.max(0, level - passed), passed
end

