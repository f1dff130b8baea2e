-- End the leases of one incarnation now: an operator or its supervisor knows that it is dead.
--
-- KEYS     meta         HASH
--          owners       HASH
--          leases       ZSET
-- EACH     head         HASH
-- ARGS     partitions   int
--          layout       int
--          replid       str
--          why          str   what is known of its death, as JSON text; '' for nothing
-- LIST     held         id token   as read from `owners` before; a late copy hits nothing
-- REPLIES  OK           count
-- USES     clock fleet
-- FLAGS    allow-oom

local refused = fleet_guard(meta, partitions, layout, replid)
if refused then return refused end

local count = 0
for i, lease in ipairs(held) do
  if redis.call('HGET', owners, lease.id) == lease.token then
    redis.call('ZADD', leases, 'XX', 0, lease.id)
    if why ~= '' then redis.call('HSET', EACH[i].head, 'lapsed_error', why) end
    count = count + 1
  end
end
return reply('OK', int(count))
