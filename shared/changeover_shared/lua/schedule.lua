-- Keep one schedule of the fleet: make it, move it to its next time, or take it away.
--
-- Who has seen a schedule changes it only as he saw it: by its version, which is a digest of what
-- it does, and by when it is due. So one who comes late changes nothing. Who has seen none makes
-- it; one that does the same already stays as it is, and keeps its times.
--
-- KEYS     meta        HASH  of the slot in which all schedules lie
--          by_name     HASH  name -> version|due|session|body
--          due         ZSET  name by when to look at it: when it is due, or when to try again
-- ARGS     partitions  int
--          layout      int
--          replid      str
--          not_after   int
--          name        str
--          session     str   whom it submits to
--          seen        str   <version>|<due> as it was read; '' to make it
--          version     str   '' to take it away
--          at          int   when it is due
--          look        int   when to look at it
--          body        str   what it does; '' leaves it as it is
--          most        int   how many schedules a fleet has
-- SEALED   body         schedule
-- REPLIES  OK          at    when it is due, 0 when it was taken away
--          STALE       at    it does something else by now, or is due at another time
--          NONE              there is no such schedule
--          FULL        count limit
-- USES     clock fleet

local refused = fleet_guard(meta, partitions, layout, replid, not_after)
if refused then return refused end

local found = redis.call('HGET', by_name, name)
local held, held_at = string.match(found or '', '^([^|]*)|(%d+)|')
if seen == '' then
  if held and held == version then return reply('OK', held_at) end
  local count = redis.call('ZCARD', due)
  if not found and count >= tonumber(most) then return reply('FULL', int(count), most) end
else
  if not held then return reply('NONE') end
  if held .. '|' .. held_at ~= seen then
    if held == version and held_at == at then return reply('OK', at) end
    return reply('STALE', held_at)
  end
end

if version == '' then
  redis.call('HDEL', by_name, name)
  redis.call('ZREM', due, name)
  return reply('OK', '0')
end
if body == '' and found then
  local _, last = string.find(found, '^[^|]*|%d+|[^|]*|')
  body = string.sub(found, last + 1)
end
redis.call('HSET', by_name, name, table.concat({version, at, session, body}, '|'))
redis.call('ZADD', due, look, name)
return reply('OK', at)
