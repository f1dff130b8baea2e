-- Stop a session until an operator lets it go on. Its turn stays open, what waits is kept.
--
-- A holder is not asked: it loses its lease, its next write is refused, and what it has started
-- counts as after a takeover. Nothing is counted against the session.
--
-- KEYS     meta         HASH
--          head         HASH
--          work         HASH
--          journal      STREAM
--          leases       ZSET
--          owners       HASH
--          stalls       HASH
--          alerts       HASH
--          ready        ZSET
--          solo         ZSET
--          timers       ZSET
--          vt           HASH
--          waiting      HASH
--          quarantine   ZSET
-- ARGS     partitions   int
--          layout       int
--          replid       str
--          not_after    int
--          session      str
--          route        str
--          number       int   which quarantine of the session this is: a late copy begins no other
--          detail       str   the body of the event
-- SEALED   detail       event
-- REPLIES  OK           number status   also when it is quarantined, or was so meanwhile
--          STALE        number          no such session, it has ended, or this is not its next one
--          ROUTE        route agent
-- USES     clock fleet session journal waiting place lease quarantine
-- FLAGS    allow-oom

local refused, epoch = fleet_guard(meta, partitions, layout, replid, not_after)
if refused then return refused end

local at = {leases = leases, owners = owners, stalls = stalls, alerts = alerts, ready = ready,
  solo = solo, timers = timers, vt = vt, waiting = waiting}
local s = load(session, {head = head, work = work, journal = journal})
read_owner(s, at)
local status = get(s, 'status')
local before = num(s, 'quarantine_no')
if not s.exists or status == 'deleted' or status == 'closed' then
  return reply('STALE', int(before))
end
if status == 'quarantined' or int(before) == number then return reply('OK', int(before), status) end
if int(before + 1) ~= number then return reply('STALE', int(before)) end
if get(s, 'route') ~= route then return reply('ROUTE', get(s, 'route'), get(s, 'agent')) end
refused = unfit(s)
if refused then return refused end

if s.owner then
  set(s, 'lapsed', s.owner)
  set(s, 'lapsed_why', s.expires > now and 'evicted' or 'taken_over')
  set(s, 'attempts', num(s, 'attempts0'))
  drop_lease(s, at)
end
quarantine_session(s, quarantine, detail)
event(s, epoch, 'session_quarantined', '', get(s, 'turn'), '', detail)
status = place(s, at)
return reply('OK', number, status)
