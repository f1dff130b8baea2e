-- The first guards of every script: is this the universe that the caller believes in? With it come
-- the epoch and, while memory is short, {used, limit, until}.
--
-- REPLIES  NO_FLEET                  the partition was never initialised
--          LAYOUT     P layout       another partition count or key layout
--          EPOCH      replid epoch   the caller's server is not the one that wrote here last
--          LATE                      the caller has stopped waiting; nothing may be granted

local function pressure_of(said)
  local used, limit, till = string.match(said or '', '^(%d+)|(%d+)|(%d+)$')
  if till and tonumber(till) > now then return {used, limit, tonumber(till)} end
end

local function fleet_guard(meta, partitions, layout, replid, not_after)
  local found = redis.call('HMGET', meta, 'P', 'layout', 'replid', 'epoch', 'pressure')
  if not found[1] then return reply('NO_FLEET') end
  if found[1] ~= partitions or found[2] ~= layout then
    return reply('LAYOUT', found[1], found[2])
  end
  if found[3] ~= replid then return reply('EPOCH', found[3], found[4]) end
  if not_after and tonumber(not_after) < now then return reply('LATE') end
  return nil, found[4], pressure_of(found[5])
end
