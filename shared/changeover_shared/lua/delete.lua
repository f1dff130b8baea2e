-- End a session's life: what is open is cancelled, and a tombstone keeps the counters.
--
-- A holder learns of it from its next write. Nothing re-creates the session but a submission that
-- may; its next life goes on from these counters, so a writer of this one can never match it.
--
-- KEYS     meta         HASH
--          head         HASH
--          work         HASH
--          inbox        STREAM
--          receipts     HASH    kept for the window
--          settled      ZSET    likewise
--          journal      STREAM  what this script writes is kept for the window
--          checkpoint   STREAM
--          transcript   STREAM
--          turns        STREAM
--          context      STRING  the prefix of `prefix_epoch`
--          leases       ZSET
--          owners       HASH
--          stalls       HASH
--          alerts       HASH
--          ready        ZSET
--          solo         ZSET
--          timers       ZSET
--          vt           HASH
--          waiting      HASH
--          sessions     ZSET
--          quarantine   ZSET
--          graves       ZSET    tombstone by the time of its deletion
-- ARGS     partitions   int
--          layout       int
--          replid       str
--          not_after    int
--          session      str
--          life         int   which of its lives: a late copy ends no other
--          at_seq       int   only while this is the last event and nothing is open; -1 always
--          route        str
--          prefix_epoch int
--          detail       str   the body of the event
--          window       int   ms
-- SEALED   detail       event
-- REPLIES  OK           seq   of the last event; also when this life was deleted before
--          STALE        life  there is no such session, or it lives another life
--          MOVED        seq
--          ROUTE        route agent
--          CONTEXT      epoch
-- USES     clock fleet session journal settle waiting place lease
-- FLAGS    allow-oom

local refused, epoch = fleet_guard(meta, partitions, layout, replid, not_after)
if refused then return refused end

local at = {leases = leases, owners = owners, stalls = stalls, alerts = alerts, ready = ready,
  solo = solo, timers = timers, vt = vt, waiting = waiting}
local s = load(session, {head = head, work = work, inbox = inbox, receipts = receipts,
  settled = settled, journal = journal})
read_owner(s, at)
if not s.exists or get(s, 'life') ~= life then return reply('STALE', int(num(s, 'life'))) end
if get(s, 'status') == 'deleted' then return reply('OK', int(num(s, 'seq'))) end
if at_seq ~= '-1' and (int(num(s, 'seq')) ~= at_seq or next(s.inputs)) then
  return reply('MOVED', int(num(s, 'seq')))
end
if get(s, 'route') ~= route then return reply('ROUTE', get(s, 'route'), get(s, 'agent')) end
if int(num(s, 'context_epoch')) ~= prefix_epoch then
  return reply('CONTEXT', int(num(s, 'context_epoch')))
end
refused = unfit(s)
if refused then return refused end

local first = num(s, 'seq') + 1
for _, n in ipairs(positions(s, function() return true end)) do
  settle_apart(s, epoch, s.inputs[n], 'cancelled', '')
end
if get(s, 'ctl_sub') ~= '' then
  settle(s, get(s, 'ctl_sub'), nil, 'cancelled', get(s, 'turn'), num(s, 'seq'))
end
event(s, epoch, 'session_deleted', '', get(s, 'turn'), '', detail)
redis.call('XTRIM', journal, 'MINID', int(first) .. '-0')

drop_lease(s, at)
set(s, 'fence', num(s, 'fence') + 1)
set(s, 'first_seq', first)
set(s, 'deleted_ms', now)
set(s, 'status', 'deleted')
place(s, at)
local kept = {v = true, life = true, status = true, fence = true, seq = true, first_seq = true,
  rev = true, n = true, turns = true, transcript_n = true, epoch = true, epoch_seq = true,
  at_ms = true, dedup_floor = true, deleted_ms = true, used_nonce = true,
  quarantine_no = true}
for field in pairs(s.head) do
  if not kept[field] then redis.call('HDEL', head, field) end
end
redis.call('ZREM', sessions, session)
redis.call('ZREM', quarantine, session)
redis.call('ZADD', graves, int(now), session)
redis.call('UNLINK', work, inbox, checkpoint, transcript, turns, context)
for _, key in ipairs({journal, receipts, settled}) do redis.call('PEXPIRE', key, window) end
return reply('OK', int(num(s, 'seq')))
