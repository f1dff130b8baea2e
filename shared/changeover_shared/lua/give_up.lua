-- Give a session up outside a commit; the next state follows from what is open.
--
-- The expiry is ignored: a holder that is late but not replaced gives up cleanly, and the next
-- grant does not count against the session.
--
-- KEYS     meta        HASH
--          head        HASH
--          work        HASH
--          leases      ZSET
--          owners      HASH
--          stalls      HASH
--          alerts      HASH
--          ready       ZSET
--          solo        ZSET
--          timers      ZSET
--          vt          HASH
--          waiting     HASH
-- ARGS     partitions  int
--          layout      int
--          replid      str
--          session     str
--          lease       str
--          reason      str   hand_off, release, unable
--          backoff     int   unable: not offered again before, ms
-- REPLIES  OK          status ready_count   also when this lease was given up before
--          DELETED
--          GONE
--          LOST        fence
-- USES     clock fleet session waiting place lease
-- FLAGS    allow-oom

local refused = fleet_guard(meta, partitions, layout, replid)
if refused then return refused end

local at = {leases = leases, owners = owners, stalls = stalls, alerts = alerts, ready = ready,
  solo = solo, timers = timers, vt = vt, waiting = waiting}
local s = load(session, {head = head, work = work})
read_owner(s, at)
if get(s, 'status') == 'deleted' then return reply('DELETED') end
if s.owner ~= lease then
  if get(s, 'last_rel') == lease then
    return reply('OK', get(s, 'status'), int(redis.call('ZCARD', ready)))
  end
  if s.owner then return reply('LOST', fence_of(s.owner)) end
  return reply('GONE')
end

drop_lease(s, at)
set(s, 'last_rel', lease)
set(s, 'attempts', num(s, 'attempts0'))
if reason == 'hand_off' then
  set(s, 'lapsed', lease)
  set(s, 'lapsed_why', 'handed_off')
else
  set(s, 'lapsed', '')
end
if reason == 'unable' then set(s, 'not_before', now + backoff) end
-- The first hand-off keeps its place; a second one without progress is charged as new.
if reason == 'hand_off' and get(s, 'tag_kept') == '' then
  set(s, 'tag_kept', '1')
else
  set(s, 'tag', '')
end
local status = place(s, at)
return reply('OK', status, int(redis.call('ZCARD', ready)))
