-- Say that memory is short, or that it is not any more: while it is, no session of the partition
-- takes a message.
--
-- What is said ends by itself: without a worker that measures nobody could take it back.
--
-- KEYS     meta        HASH  pressure = used|limit|until
-- ARGS     partitions  int
--          layout      int
--          replid      str
--          used        int   bytes
--          limit       int   bytes; 0 when memory is not short
--          span        int   how long it holds unless it is said again, ms
-- REPLIES  OK
-- USES     clock fleet
-- FLAGS    allow-oom

local refused = fleet_guard(meta, partitions, layout, replid)
if refused then return refused end

if limit == '0' then
  redis.call('HDEL', meta, 'pressure')
else
  redis.call('HSET', meta, 'pressure', table.concat({used, limit, int(now + span)}, '|'))
end
return reply('OK')
