-- The part of Redis' `struct` library that the scripts here use, for the in-process state, whose Lua has none:
-- big-endian unsigned integers of one, two and four bytes (`>`, then B, I2, I4).
local struct = {}

local function sizes(format)
  local found = {}
  for letter, size in string.gmatch(string.sub(format, 2), '([BI])(%d?)') do
    found[#found + 1] = letter == 'B' and 1 or tonumber(size)
  end
  return found
end

function struct.pack(format, ...)
  local parts = {}
  for i, size in ipairs(sizes(format)) do
    local value, bytes = select(i, ...), {}
    for place = size, 1, -1 do
      bytes[place] = string.char(value % 256)
      value = math.floor(value / 256)
    end
    parts[i] = table.concat(bytes)
  end
  return table.concat(parts)
end

function struct.unpack(format, raw, place)
  local values = {}
  place = place or 1
  for i, size in ipairs(sizes(format)) do
    local value = 0
    for byte = place, place + size - 1 do value = value * 256 + string.byte(raw, byte) end
    values[i] = value
    place = place + size
  end
  values[#values + 1] = place
  return unpack(values)
end

return struct
