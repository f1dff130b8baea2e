-- Give up all that an operator has seen open in a quarantined session: its turn ends, and it is
-- idle, unless something came after the look. Nobody named that, so it runs.
--
-- KEYS     meta         HASH
--          head         HASH
--          work         HASH
--          inbox        STREAM
--          receipts     HASH
--          settled      ZSET
--          journal      STREAM
--          turns        STREAM
--          leases       ZSET
--          owners       HASH
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
--          number       int   which quarantine of the session this ends
--          last         int   the position of the last one that was seen
--          detail       str   the body of the event
--          record       str   of the turn that ends, '' for none
-- SEALED   detail       event
--          record       turn
-- REPLIES  OK           status   also when the same was done before
--          STALE        number   it is not in that quarantine
--          ROUTE        route agent
-- USES     clock fleet session journal settle waiting place lease quarantine dead_letter
-- FLAGS    allow-oom

local refused, epoch = fleet_guard(meta, partitions, layout, replid, not_after)
if refused then return refused end

local at = {leases = leases, owners = owners, ready = ready, solo = solo, timers = timers,
  vt = vt, waiting = waiting}
local s = load(session, {head = head, work = work, inbox = inbox, receipts = receipts,
  settled = settled, journal = journal})
read_owner(s, at)
local status = get(s, 'status')
if int(num(s, 'quarantine_no')) ~= number or status == 'deleted' then
  return reply('STALE', int(num(s, 'quarantine_no')))
end
local all = 'all|' .. last
if status ~= 'quarantined' then
  if get(s, 'redriven') ~= all then return reply('STALE', number) end
  return reply('OK', status)
end
if get(s, 'route') ~= route then return reply('ROUTE', get(s, 'route'), get(s, 'agent')) end
refused = unfit(s)
if refused then return refused end

if get(s, 'turn') ~= '' then give_turn_up(s, epoch, turns, record) end
for _, n in ipairs(positions(s, function(input) return input.n <= tonumber(last) end)) do
  dead_letter(s, epoch, s.inputs[n], '')
end
event(s, epoch, 'session_redriven', '', '', '', detail)
end_quarantine(s, quarantine)
set(s, 'redriven', all)
status = place(s, at)
return reply('OK', status)
