-- Store label records.  Prepended to the scripts that write them.
-- KEYS from first_key + 1: the areas, an area of exceptions behind each that has one.
-- ARGV from place: '1' where the principal is marked full anyway, the source they count against,
-- records a source may have; then for each area: mode (keep, taint, raise, replace, lift, append, gather, index,
-- log, number), ttl (ms, 0 keeps), limit, '1' where exceptions follow, number of entries, field and record of each.
-- A record that does not fit is dropped and marks the principal full: what is missing is unknown,
-- and an unknown value of a full principal is asked about wherever it would have been allowed.

local function is_higher(record, before)
  return string.byte(record, LABEL_BYTE) > (string.byte(before, LABEL_BYTE) or 0)
end

-- Who sent a text says who he is; what somebody else says of him is more.
local function gives_way(before, record)
  return string.byte(before, CHANNEL_BYTE) == COUNTERPARTY
    and string.byte(record, CHANNEL_BYTE) ~= COUNTERPARTY
end

-- Return a list with one more entry, nothing where it has that entry already.  A list is two bytes of
-- how many entries there ever were, then two bytes of length before each; what cannot be told apart
-- at its end is cut off, and the count says that something is missing.
-- A list is long, and what Lua allocates is most of what this costs: no part of it is copied twice.
local function appended(list, entry)
  if not list or #list < 2 then list = '\0\0' end
  local byte, sub, length = string.byte, string.sub, #list
  local id = sub(entry, ID_AT + 1, ID_AT + ID)
  local maybe_held = string.find(list, id, 3, true)
  local held, place, cut, cut_to = 0, 3, 0, 0
  while place < length and held < LIST_LIMIT do
    local high, low = byte(list, place, place + 1)
    local after = place + 2 + high * 256 + low
    if after > length + 1 then break end
    if maybe_held and sub(list, place + 2 + ID_AT, place + 1 + ID_AT + ID) == id then return nil end
    if held == LIST_FIRST then cut, cut_to = place, after end
    held = held + 1
    place = after
  end
  local high, low = byte(list, 1, 2)
  local count = struct.pack('>I2', math.min(high * 256 + low + 1, 65535))
  local size = struct.pack('>I2', #entry)
  if held == LIST_LIMIT then
    return count .. sub(list, 3, cut - 1) .. sub(list, cut_to, place - 1) .. size .. entry
  end
  return count .. sub(list, 3, place - 1) .. size .. entry
end

-- Entries of a stream have numbers that go up by one: where one is missing, an entry is.
local function log_entries(key, limit, count, place)
  for i = 1, count do
    local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
    local number = last and tonumber(string.match(last[1], '^%d+')) or 0
    redis.call('XADD', key, 'MAXLEN', '~', limit, string.format('%d-1', number + 1), 'n',
      ARGV[place + 4 + 2 * i])
  end
end

-- A reader of an index removes members whose record has ended; no clock decides about that.
local function index_entries(key, limit, count, place)
  for i = 1, count do
    local member, ends = ARGV[place + 3 + 2 * i], tonumber(ARGV[place + 4 + 2 * i])
    redis.call('ZADD', key, string.format('%.3f', ends), member)
  end
  redis.call('ZREMRANGEBYRANK', key, 0, -limit - 1)
end

local function store_labels(full_key, source_key, first_key, full_ttl, place)
  local full = ARGV[place] == '1'
  local source, source_limit = ARGV[place + 1], tonumber(ARGV[place + 2])
  local total = 0
  place = place + 3
  local k = first_key + 1
  while k <= #KEYS do
    local key, mode, ttl = KEYS[k], ARGV[place], ARGV[place + 1]
    local limit, count = tonumber(ARGV[place + 2]), tonumber(ARGV[place + 4])
    local exceptions = nil
    if ARGV[place + 3] == '1' then
      k = k + 1
      exceptions = KEYS[k]
    end
    local is_whole = mode == 'log' or mode == 'index'
    -- Most lists are there: whether there is room for one more is asked where one is not.
    local room = (is_whole or mode == 'append' or mode == 'number') and 0 or limit - redis.call('HLEN', key)
    local added, lists = 0, nil
    if mode == 'log' then log_entries(key, limit, count, place) end
    if mode == 'index' then index_entries(key, limit, count, place) end
    for i = 1, is_whole and 0 or count do
      local field, record = ARGV[place + 3 + 2 * i], ARGV[place + 4 + 2 * i]
      if mode == 'lift' then
        redis.call('HDEL', key, field)
      elseif exceptions and redis.call('HEXISTS', exceptions, field .. 'A') == 1 then
        -- The memory has a label of its own for this value.
      elseif mode == 'append' then
        -- Evidence and no label: it has half of the area, and marks nobody full.
        local before = redis.call('HGET', key, field)
        lists = lists or not before and redis.call('HLEN', key)
        local list = (before or lists < limit / 2) and appended(before, record)
        if list then
          redis.call('HSET', key, field, list)
          if not before then lists = lists + 1 end
        end
      elseif mode == 'number' then
        -- The field counts; behind it lies each of the first records, and of the last ones.
        local number = redis.call('HINCRBY', key, field, 1)
        if number == 1 and redis.call('HLEN', key) > limit / 2 * (LIST_LIMIT + 1) then
          redis.call('HDEL', key, field)
        else
          local past = number - LIST_FIRST - 1
          local at = past < 0 and number or LIST_FIRST + 1 + past % (LIST_LIMIT - LIST_FIRST)
          redis.call('HSET', key, field .. string.char(at), record)
        end
      elseif mode == 'gather' then
        local before = redis.call('HGET', key, field)
        if before then
          if #before < UNITS_KEPT * #record and not string.find(before, record, 1, true) then
            redis.call('HSET', key, field, before .. record)
          end
        elseif added < room then
          redis.call('HSET', key, field, record)
          added = added + 1
        else
          full = true
        end
      elseif mode == 'keep' and added < room then
        added = added + redis.call('HSETNX', key, field, record)
      elseif mode == 'taint' and added < room
        and redis.call('HSETNX', key, field, record) == 1 then
        added = added + 1
      else
        local before = redis.call('HGET', key, field)
        if before then
          if mode == 'replace' or (mode == 'raise' and is_higher(record, before))
            or (mode == 'taint' and gives_way(before, record)) then
            redis.call('HSET', key, field, record)
          end
        elseif added < room then
          redis.call('HSET', key, field, record)
          added = added + 1
        else
          full = true
        end
      end
    end
    if ttl ~= '0' then redis.call('PEXPIRE', key, ttl) end
    total = total + added
    place = place + 5 + 2 * count
    k = k + 1
  end
  if source ~= '' and total > 0 then
    if redis.call('HINCRBY', source_key, source, total) > source_limit then full = true end
    redis.call('PEXPIRE', source_key, full_ttl)
  end
  if full then redis.call('SET', full_key, '1', 'PX', full_ttl) end
end
