-- One reading of Redis's clock per script, whole numbers as text, and replies that carry the time.
--
-- Lua numbers are doubles: whole numbers are exact below 2^53 and are always written by `int`,
-- never by `..` or `tostring`, which keep 14 digits.

local TIME = redis.call('TIME')
local now = TIME[1] * 1000 + math.floor(TIME[2] / 1000)

local function int(number)
  return string.format('%.0f', number)
end

local function reply(...)
  local values = {...}
  values[#values + 1] = int(now)
  return values
end
