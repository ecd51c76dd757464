-- One window of counters as one packed string, behind the constants that guard/store/layout.py
-- renders, so that the layout is written down once: BYTE_x is a field's place in a packed window.
-- A script is compiled once and run from its first line on every call, so what stands here is only
-- what every script needs, and constants are plain locals instead of tables.

-- Counters stop here; one that wrapped would forget what a session did.
local MAX = 4294967295

-- Returns what MGET read of a key as a packed window, and nil for a string that is not a window of this version: the
-- caller answers an error before it has written anything, so nothing unreadable is ever overwritten with a clean slate.
local function checked(key, raw)
  -- MGET says nothing of a key of another type; GET raises.
  if not raw then return redis.call('EXISTS', key) == 1 and redis.call('GET', key) or FRESH end
  if #raw ~= SIZE or string.byte(raw, 1) ~= VERSION then return nil end
  return raw
end

local function write(key, raw, milliseconds)
  redis.call('SET', key, raw, 'PX', milliseconds)
end

-- Add to one counter of a packed window.  Parsing all of it would double the cost of an attempt.
local function add_packed(raw, byte, amount)
  local value = math.min(struct.unpack('>I4', raw, byte) + amount, MAX)
  return string.sub(raw, 1, byte - 1) .. struct.pack('>I4', value) .. string.sub(raw, byte + 4)
end
