-- One window of counters as one packed string.  Prepended to every script, after the constants
-- that guard/adapters/redis/layout.py renders (VERSION, FORMAT, SIZE, FIELDS, NO_ROLE, ROLE, PAIRS,
-- AT, BYTE), so that the layout is written down once.  AT is a field's place in a parsed window (a
-- flat array of FIELDS numbers), BYTE its place in a packed one.

-- Counters stop here; one that wrapped would forget what a session did.
local MAX = 4294967295

local function pack(window)
  return struct.pack(FORMAT, unpack(window, 1, FIELDS))
end

local function fresh()
  local window = {}
  for i = 1, FIELDS do window[i] = 0 end
  window[1] = VERSION
  window[AT.first] = NO_ROLE
  window[AT.last] = NO_ROLE
  return pack(window)
end

-- Returns the packed window, and nil for a string that is not a window of this version: the caller answers an error
-- before it has written anything, so nothing unreadable is ever overwritten with a clean slate.
local function read(key)
  local raw = redis.call('GET', key)
  if not raw then return fresh() end
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

local function add(window, at, amount)
  window[at] = math.min(window[at] + amount, MAX)
end
