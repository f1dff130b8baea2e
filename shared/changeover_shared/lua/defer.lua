-- Keep a ready session from being offered for a while: its tenant or its model is at a limit.
--
-- It keeps its place in the fair order, and no longer fills the window of each look.
--
-- KEYS     meta        HASH
--          head        HASH
--          work        HASH
--          leases      ZSET
--          owners      HASH
--          ready       ZSET
--          solo        ZSET
--          timers      ZSET
--          vt          HASH
--          waiting     HASH
-- ARGS     partitions  int
--          layout      int
--          replid      str
--          session     str
--          route       str
--          span        int   ms
--          reason      str   what is at its limit: tenant, queue; kept for people until the next grant
-- REPLIES  OK          not_before
--          NONE        it is not ready, or it is held
--          ROUTE       route
-- USES     clock fleet session waiting place lease
-- FLAGS    allow-oom

local refused = fleet_guard(meta, partitions, layout, replid)
if refused then return refused end

local at = {leases = leases, owners = owners, ready = ready, solo = solo, timers = timers,
  vt = vt, waiting = waiting}
local s = load(session, {head = head, work = work})
read_owner(s, at)
if not s.exists or get(s, 'status') == 'deleted' then return reply('NONE') end
if get(s, 'route') ~= route then return reply('ROUTE', get(s, 'route')) end
if where(s) ~= 'ready' then return reply('NONE') end

set(s, 'not_before', now + span)
set(s, 'deferred', reason)
place(s, at)
return reply('OK', int(num(s, 'not_before')))
