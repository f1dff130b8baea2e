-- End the leases of one incarnation now: an operator or its supervisor knows that it is dead.
--
-- KEYS     meta         HASH
--          owners       HASH
--          leases       ZSET
-- ARGS     partitions   int
--          layout       int
--          replid       str
-- LIST     held         id token   as read from `owners` before; a late copy hits nothing
-- REPLIES  OK           count
-- USES     clock fleet
-- FLAGS    allow-oom

local refused = fleet_guard(meta, partitions, layout, replid)
if refused then return refused end

local count = 0
for _, lease in ipairs(held) do
  if redis.call('HGET', owners, lease.id) == lease.token then
    redis.call('ZADD', leases, 'XX', 0, lease.id)
    count = count + 1
  end
end
return reply('OK', int(count))
