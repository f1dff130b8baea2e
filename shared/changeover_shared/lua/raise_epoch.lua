-- Begin a new epoch: the server behind the partition is another one than the one that wrote last.
--
-- KEYS     meta        HASH
-- ARGS     partitions  int
--          layout      int
--          expected    str   the replication id that the caller was told of
--          replid      str   the one that its connection has
-- REPLIES  OK          epoch
--          STALE       replid epoch   somebody else was faster, or the server changed again
--          NO_FLEET
--          LAYOUT      P layout
-- USES     clock
-- FLAGS    allow-oom

local found = redis.call('HMGET', meta, 'P', 'layout', 'replid', 'epoch')
if not found[1] then return reply('NO_FLEET') end
if found[1] ~= partitions or found[2] ~= layout then return reply('LAYOUT', found[1], found[2]) end
if found[3] == replid then return reply('OK', found[4]) end
if found[3] ~= expected then return reply('STALE', found[3], found[4]) end

redis.call('HSET', meta, 'replid', replid)
return reply('OK', int(redis.call('HINCRBY', meta, 'epoch', 1)))
