-- Say whose inboxes hold as many submissions as may wait in the whole fleet: no session of such a
-- tenant, or none at all, takes a message. What is said replaces what was said before, and ends by
-- itself: without a worker that counts nobody could take it back.
--
-- KEYS     meta        HASH  full = until|whose=depth/limit|...|
-- ARGS     partitions  int
--          layout      int
--          replid      str
--          span        int   how long it holds unless it is said again, ms
-- LIST     crowded     whose depth limit   a tenant, or `*` for all
-- REPLIES  OK
-- USES     clock fleet
-- FLAGS    allow-oom

local refused = fleet_guard(meta, partitions, layout, replid)
if refused then return refused end

if #crowded == 0 then
  redis.call('HDEL', meta, 'full')
else
  local said = {int(now + span)}
  for _, one in ipairs(crowded) do
    said[#said + 1] = one.whose .. '=' .. one.depth .. '/' .. one.limit
  end
  redis.call('HSET', meta, 'full', table.concat(said, '|') .. '|')
end
return reply('OK')
