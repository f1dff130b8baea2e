-- Look at a partition's indexes: what expired, what is due, what is ready. Grants nothing.
--
-- Of a queue that is paused nothing is offered: its sets look empty.
--
-- KEYS     meta        HASH
--          leases      ZSET  session by expiry
--          timers      ZSET  session by due time
--          waiting     HASH  how many submissions wait, of all and of each tenant
-- EACH     ready       ZSET  one ready set that the caller asks for
-- ARGS     partitions  int
--          layout      int
--          replid      str
--          window      int   how many ready sessions per set
--          max_ttl     int   no honest lease ends later than now + max_ttl
--          sums        0|1   answer what waits
-- LIST     routes      route   of each ready set
-- REPLIES  OK          {expired} {due} {{count, session ...} per ready set} pressure   for how many
--                      ms more messages are refused for want of memory; {whose count ...}: what
--                      waits; full   what `full` said, '' when that is over
-- USES     clock fleet paused full
-- FLAGS    no-writes

local OLDEST = 32

local refused, _, pressure = fleet_guard(meta, partitions, layout, replid)
if refused then return refused end

local function oldest(key, from, to)
  return redis.call('ZRANGE', key, from, to, 'BYSCORE', 'LIMIT', 0, OLDEST)
end

local expired = oldest(leases, '-inf', int(now))
for _, id in ipairs(oldest(leases, '(' .. int(now + max_ttl), '+inf')) do
  expired[#expired + 1] = id
end
local sets = {}
for i, each in ipairs(EACH) do
  local found = {'0'}
  if not is_paused(meta, routes[i].route) then
    found = redis.call('ZRANGE', each.ready, 0, window - 1)
    table.insert(found, 1, int(redis.call('ZCARD', each.ready)))
  end
  sets[i] = found
end
return reply('OK', expired, oldest(timers, '-inf', int(now)), sets,
  int(pressure and pressure[3] - now or 0), sums == '1' and redis.call('HGETALL', waiting) or {},
  still_full(meta) or '')
