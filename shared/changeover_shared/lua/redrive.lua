-- Let a quarantined session try again, with all its attempts; if asked, give one input of it up
-- first. If the open turn has taken that input, the turn ends with it.
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
--          skip         int   the position of the input that is given up; 0 for none
--          detail       str   the body of the event
--          record       str   of the turn that ends, '' for none
-- SEALED   detail       event
--          record       turn
-- REPLIES  OK           status ready_count   also when the same was done before
--          STALE        number               it is not in that quarantine
--          INPUT        {n ...}              there is no such input; these are open
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
if status ~= 'quarantined' then
  if get(s, 'redriven') ~= skip then return reply('STALE', number) end
  return reply('OK', status, int(redis.call('ZCARD', ready)))
end
if get(s, 'route') ~= route then return reply('ROUTE', get(s, 'route'), get(s, 'agent')) end
local input = s.inputs[tonumber(skip)]
if skip ~= '0' and (not input or input.class == 'answer') then
  local open = positions(s, function(one) return one.class ~= 'answer' end)
  for i, n in ipairs(open) do open[i] = int(n) end
  return reply('INPUT', open)
end
refused = unfit(s)
if refused then return refused end

if input and is_waiting(input) then
  dead_letter(s, epoch, input, '')
elseif input then
  give_turn_up(s, epoch, turns, record)
end
event(s, epoch, 'session_redriven', '', '', '', detail)
end_quarantine(s, quarantine)
set(s, 'redriven', skip)
status = place(s, at)
return reply('OK', status, int(redis.call('ZCARD', ready)))
