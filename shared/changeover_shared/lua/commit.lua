-- Change everything that one step changes, together or not at all.
--
-- The script that ends a turn settles all that belongs to it; the worker names only what it takes.
-- A repeat of the last commit is answered from `commit_reply`, with the lease as it is now.
--
-- KEYS     meta         HASH
--          head         HASH
--          work         HASH
--          inbox        STREAM
--          receipts     HASH
--          settled      ZSET
--          checkpoint   STREAM  <rev>-0, the newest three
--          transcript   STREAM  <n>-0
--          journal      STREAM
--          turns        STREAM  <turn number>-0
--          context_old  STRING  the rewritten prefix of the epoch before
--          context_new  STRING  and of the one that this commit begins
--          leases       ZSET
--          owners       HASH
--          stalls       HASH
--          alerts       HASH
--          ready        ZSET
--          solo         ZSET
--          timers       ZSET
--          outbox       STREAM
--          vt           HASH
--          waiting      HASH
--          quarantine   ZSET
-- ARGS     partitions   int
--          layout       int
--          replid       str
--          session      str
--          lease        str
--          commit_id    str
--          rev          int   the revision that this one follows
--          turn         str   the open turn, or the one to open: t_<turns + 1>
--          kind         str   start, take, step, result, answer, retry, recover, end
--          finish       str   '', completed, failed, aborted, requeue
--          next         str   hold, auto, release, park, close, quarantine
--          progress     0|1
--          state        str   the checkpoint
--          record       str   the turn's record, with `finish`
--          prefix       str   the rewritten context, '' to leave it
--          prefix_epoch int
--          keep_from    int   the oldest transcript item still needed, 0 to leave it
--          route        str
--          max_step     int
--          no_progress  int   for how long it may be held without progress, ms; 0 for ever
--          quantum      0|1   turns of the quantum are left
-- LIST     take         n
--          consume      wait n
--          closes       wait  waits that are over without an answer
--          opens        wait kind deadline
--          items        body
--          events       kind sub turn step body
--          drops        seq
--          rows         id session body
-- SEALED   state        checkpoint
--          record       turn
--          prefix       prefix
--          items.body   item
--          events.body  event
--          rows.body    row
-- REPLIES  OK           held rev first_seq n ctl_epoch ctl_kind waiting ready_count status
--          REPLAY       the same, with `held` as it is now
--          REWOUND      rev          the store has forgotten commits of this holder
--          CONFLICT     rev turn
--          CONTROL      kind sub     the turn was interrupted: it can only fail or be aborted, by a
--                                    rollback only so that the context is rid of it
--          INPUT        {n ...}      not all inputs can be taken; these can. Or a wait is not as
--                                    it was told: answered, not answered, not there
--          BAD_PARK                  nothing would end the wait; or a close that ends no turn, a
--                                    quarantine that ends one
--          BINDING                   an outbox row of another session
--          CONTEXT      epoch        a rewritten context begins the epoch after this one
--          TOO_BIG      bytes limit
--          ROUTE        route
-- USES     clock fleet session journal settle waiting place lease holder quarantine paused

local MAX_BYTES = 33554432
local KEPT = 3

local refused, epoch = fleet_guard(meta, partitions, layout, replid)
if refused then return refused end
for _, row in ipairs(rows) do
  if row.session ~= session then return reply('BINDING') end
end

local at = {leases = leases, owners = owners, stalls = stalls, alerts = alerts, ready = ready,
  solo = solo, timers = timers, vt = vt, waiting = waiting}
local s = load(session, {head = head, work = work, inbox = inbox, receipts = receipts,
  settled = settled, journal = journal})
read_owner(s, at)

if commit_id == get(s, 'commit_id') then
  local held = s.owner == lease and s.expires > now
  return reply('REPLAY', held and 'held' or 'gone', unpack(split(get(s, 'commit_reply'))))
end

refused = lease_guard(s, lease) or unfit(s)
if refused then return refused end

rev = tonumber(rev)
if num(s, 'rev') < rev then return reply('REWOUND', int(num(s, 'rev'))) end
if num(s, 'rev') > rev then return reply('CONFLICT', int(num(s, 'rev')), get(s, 'turn')) end
local starts = kind == 'start'
local expected = starts and '' or turn
if get(s, 'turn') ~= expected
  or (starts and turn ~= 't_' .. int(num(s, 'turns') + 1))
  or (turn == '' and (finish ~= '' or #take > 0)) then
  return reply('CONFLICT', int(num(s, 'rev')), get(s, 'turn'))
end
-- A rollback that came after its holder had looked for one counts as well.
local function keeps_what_is_to_go()
  if finish ~= 'aborted' or get(s, 'ctl_kind') ~= 'rollback' then return false end
  for _, e in ipairs(events) do
    if e.kind == 'context_rolled_back' then return false end
  end
  return true
end
if turn ~= '' and get(s, 'ctl_turn') == turn
  and (finish == 'completed' or finish == 'requeue' or keeps_what_is_to_go()) then
  return reply('CONTROL', get(s, 'ctl_kind'), get(s, 'ctl_sub'))
end

local taken, groups = {}, {}
local ok = not ((starts or kind == 'take') and #take == 0)
for _, asked in ipairs(take) do
  local input = s.inputs[tonumber(asked.n)]
  if not input or not is_due(input) then
    ok = false
  else
    taken[input.n] = true
    if input.group ~= '' then groups[input.group] = true end
  end
end
for n, input in pairs(s.inputs) do
  if is_waiting(input) and groups[input.group] and not taken[n] then ok = false end
end
local consumed = {}
for _, answer in ipairs(consume) do
  local wait = s.waits[answer.wait]
  if not wait or wait.answer == 0 or wait.answer ~= tonumber(answer.n) or consumed[answer.wait] then
    ok = false
  end
  consumed[answer.wait] = true
end
local closed = {}
for _, over in ipairs(closes) do
  local wait = s.waits[over.wait]
  if not wait or wait.answer > 0 or closed[over.wait] then ok = false end
  closed[over.wait] = true
end
if not ok then
  local open = positions(s, is_due)
  for i, n in ipairs(open) do open[i] = int(n) end
  return reply('INPUT', open)
end

if next == 'park' then
  local waits, fine = 0, turn ~= '' and finish == ''
  for _, wait in ipairs(opens) do
    waits = waits + 1
    if wait.kind == 'job' and tonumber(wait.deadline) == 0 then fine = false end
  end
  -- One that has been answered meanwhile counts as well: then the lease is kept.
  for name, wait in pairs(s.waits) do
    if not closed[name] and not consumed[name] then
      waits = waits + 1
      if wait.answer == 0 and wait.kind == 'job' and wait.deadline == 0 then fine = false end
    end
  end
  if not fine or waits == 0 then return reply('BAD_PARK') end
end
if next == 'close' and finish == '' then return reply('BAD_PARK') end
if next == 'quarantine' and finish ~= '' then return reply('BAD_PARK') end
if get(s, 'route') ~= route then return reply('ROUTE', get(s, 'route')) end
if prefix ~= '' and tonumber(prefix_epoch) ~= num(s, 'context_epoch') + 1 then
  return reply('CONTEXT', int(num(s, 'context_epoch')))
end
local bytes = #state + #record + #prefix
for _, item in ipairs(items) do bytes = bytes + #item.body end
for _, e in ipairs(events) do bytes = bytes + #e.body end
if bytes > MAX_BYTES then return reply('TOO_BIG', int(bytes), int(MAX_BYTES)) end

-- From here on everything is written. The first write is refused when memory is full.
redis.call('XADD', checkpoint, 'MAXLEN', KEPT, int(rev + 1) .. '-0', 'body', state)
set(s, 'rev', rev + 1)
set(s, 'commit_id', commit_id)
if starts then
  set(s, 'turns', num(s, 'turns') + 1)
  set(s, 'turn', turn)
  set(s, 'turn_seq', num(s, 'seq'))
end
for n in pairs(taken) do
  s.inputs[n].turn = turn
  s.inputs[n].group = ''
  put_input(s, s.inputs[n])
end
local transcript_n = num(s, 'transcript_n')
for _, item in ipairs(items) do
  transcript_n = transcript_n + 1
  redis.call('XADD', transcript, int(transcript_n) .. '-0', 'body', item.body)
end
set(s, 'transcript_n', transcript_n)
if prefix ~= '' then
  redis.call('SET', context_new, prefix)
  set(s, 'context_epoch', tonumber(prefix_epoch))
  if context_old ~= context_new then redis.call('UNLINK', context_old) end
end
if tonumber(keep_from) > 0 then set(s, 'keep_from', tonumber(keep_from)) end

local first = num(s, 'seq') + 1
local end_seq
for _, e in ipairs(events) do
  local seq = event(s, epoch, e.kind, e.sub, e.turn, e.step, e.body)
  if string.sub(e.kind, 1, 5) == 'turn_' then end_seq = seq end
end
end_seq = end_seq or num(s, 'seq')
for _, drop in ipairs(drops) do redis.call('XDEL', journal, drop.seq .. '-0') end

for _, over in ipairs(closes) do drop_wait(s, over.wait) end
for _, wait in ipairs(opens) do
  put_wait(s, wait.wait, {kind = wait.kind, deadline = tonumber(wait.deadline), started = '',
    answer = 0})
end
for _, answer in ipairs(consume) do
  local n = tonumber(answer.n)
  settle(s, s.inputs[n].sub, n, 'completed', turn, num(s, 'seq'))
  drop_wait(s, answer.wait)
end

if finish ~= '' then
  for _, n in ipairs(positions(s, function(input) return input.turn == turn end)) do
    local input = s.inputs[n]
    if input.class == 'answer' then
      settle_apart(s, epoch, input, 'superseded', '')
    elseif finish == 'requeue' then
      input.turn, input.group = '', turn
      put_input(s, input)
    else
      settle(s, input.sub, n, finish, turn, end_seq)
    end
  end
  if get(s, 'ctl_sub') ~= '' then
    settle(s, get(s, 'ctl_sub'), nil, 'completed', turn, end_seq)
  end
  for name in pairs(s.waits) do drop_wait(s, name) end
  if record ~= '' then
    redis.call('XADD', turns, string.sub(turn, 3) .. '-0', 'body', record)
  end
  for _, field in ipairs({'turn', 'ctl_turn', 'ctl_kind', 'ctl_sub', 'ctl_body'}) do set(s, field, '') end
end
if next == 'close' then
  for _, n in ipairs(positions(s, function() return true end)) do
    settle_apart(s, epoch, s.inputs[n], 'cancelled', '')
  end
  set(s, 'status', 'closed')
end
if next == 'quarantine' then
  local why = '{}'
  for _, e in ipairs(events) do
    if e.kind == 'session_quarantined' then why = e.body end
  end
  quarantine_session(s, quarantine, why)
end
if progress == '1' then
  set(s, 'attempts', 0)
  set(s, 'attempts0', 0)
  set(s, 'lost_ms', '')
  set(s, 'began_ms', now)
  set(s, 'tag_kept', '')
end
for _, row in ipairs(rows) do
  redis.call('XADD', outbox, '*', 'id', row.id, 'session', session, 'body', row.body)
end

local waiting = #positions(s, is_due)
local keep = next == 'hold'
if next == 'auto' then
  keep = waiting > 0 and not is_paused(meta, route)
    and (quantum == '1' or redis.call('ZCARD', ready) == 0)
elseif next == 'park' then
  s.owner = false
  set(s, 'parked', '1')
  keep = where(s) == 'ready'
  if keep then set(s, 'parked', '') end
  s.owner = lease
end
if keep then
  local span, most = tonumber(max_step), tonumber(no_progress)
  -- A step that may take longer than that is given its time.
  set(s, 'step_ms', most > 0 and span > most and span or '')
  if progress ~= '1' and most > 0 and span <= most then
    span = math.min(span, num(s, 'began_ms') + most - num(s, 'lost_ms') - now)
  end
  redis.call('HSET', stalls, session, int(now + span))
  redis.call('HDEL', alerts, session)
else
  drop_lease(s, at)
  set(s, 'last_rel', lease)
  set(s, 'attempts', num(s, 'attempts0'))
  for _, field in ipairs({'tag', 'tag_kept', 'lapsed'}) do set(s, field, '') end
end
local status = place(s, at)
local answer = {int(rev + 1), int(first), int(num(s, 'n')), int(num(s, 'ctl_epoch')),
  get(s, 'ctl_kind'), int(waiting), int(redis.call('ZCARD', ready)), status}
redis.call('HSET', head, 'commit_reply', table.concat(answer, '|'))
return reply('OK', keep and 'held' or 'gone', unpack(answer))
