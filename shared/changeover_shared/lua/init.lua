-- Create one partition of a fleet, or confirm that it is the one that the caller means.
--
-- KEYS     meta        HASH  P, layout, epoch, replid
-- ARGS     partitions  int
--          layout      int
--          replid      str   the server's replication id, `none` where it has none
-- REPLIES  OK          epoch
--          LAYOUT      P layout   it exists with other numbers; nothing was written
-- USES     clock
-- FLAGS    allow-oom

local found = redis.call('HMGET', meta, 'P', 'layout')
if found[1] and (found[1] ~= partitions or found[2] ~= layout) then
  return reply('LAYOUT', found[1], found[2])
end

redis.call('HSETNX', meta, 'P', partitions)
redis.call('HSETNX', meta, 'layout', layout)
redis.call('HSETNX', meta, 'epoch', '1')
redis.call('HSETNX', meta, 'replid', replid)
return reply('OK', redis.call('HGET', meta, 'epoch'))
