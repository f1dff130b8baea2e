-- Let a session wait in another queue from now on.
--
-- KEYS     meta        HASH
--          head        HASH
--          work        HASH
--          leases      ZSET
--          owners      HASH
--          stalls      HASH
--          alerts      HASH
--          old_ready   ZSET
--          old_solo    ZSET
--          ready       ZSET  of the new route
--          solo        ZSET
--          timers      ZSET
--          vt          HASH
--          waiting     HASH
-- ARGS     partitions  int
--          layout      int
--          replid      str
--          not_after   int
--          session     str
--          from        str
--          to          str
-- REPLIES  OK          status ready_count   also when it waits there already: it is indexed anew
--          STALE       there is no such session, or it has ended
--          ROUTE       route
--          HELD        remaining_ms
-- USES     clock fleet session waiting place lease
-- FLAGS    allow-oom

local refused = fleet_guard(meta, partitions, layout, replid, not_after)
if refused then return refused end

local at = {leases = leases, owners = owners, stalls = stalls, alerts = alerts, ready = ready,
  solo = solo, timers = timers, vt = vt, waiting = waiting}
local s = load(session, {head = head, work = work})
read_owner(s, at)
local status = get(s, 'status')
if not s.exists or status == 'deleted' or status == 'closed' then return reply('STALE') end
local there = get(s, 'route') == to
if not there and get(s, 'route') ~= from then return reply('ROUTE', get(s, 'route')) end
if s.owner and s.expires > now then
  if there then return reply('OK', status, int(redis.call('ZCARD', ready))) end
  return reply('HELD', int(s.expires - now))
end

if s.owner then
  set(s, 'lapsed', s.owner)
  set(s, 'lapsed_why', s.expires == 0 and 'evicted' or 'taken_over')
  set(s, 'attempts', num(s, 'attempts0'))
  drop_lease(s, at)
end
if not there then
  set(s, 'route', to)
  set(s, 'tag', '')
  set(s, 'tag_kept', '')
  redis.call('ZREM', old_ready, session)
  redis.call('ZREM', old_solo, session)
end
status = place(s, at)
return reply('OK', status, int(redis.call('ZCARD', ready)))
