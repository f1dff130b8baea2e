-- Grant nothing more of a queue, or grant again. What is held goes on until it is given up.
--
-- KEYS     meta        HASH  paused:<queue> = JSON: by whom, when and why
-- ARGS     partitions  int
--          layout      int
--          replid      str
--          queue       str
--          said        json  empty: grant again
-- REPLIES  OK
-- USES     clock fleet
-- FLAGS    allow-oom

local refused = fleet_guard(meta, partitions, layout, replid)
if refused then return refused end

if said == '' then
  redis.call('HDEL', meta, 'paused:' .. queue)
else
  redis.call('HSET', meta, 'paused:' .. queue, said)
end
return reply('OK')
