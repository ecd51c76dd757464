-- A window as a flat array of FIELDS numbers; AT_x is a field's place in it.

local function pack(window)
  return struct.pack(FORMAT, unpack(window, 1, FIELDS))
end

local function add(window, at, amount)
  window[at] = math.min(window[at] + amount, MAX)
end
