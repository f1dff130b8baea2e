-- A queue that an operator has paused: nothing that waits in it is granted.

local function is_paused(meta, route)
  return redis.call('HEXISTS', meta, 'paused:' .. string.match(route, '^[^@]*')) == 1
end
