-- Accept one submission durably, creating its session if there is none, or answer what was
-- answered before.
--
-- The receipt is looked up before any refusal, so a repeat gets the first answer. A refusal
-- leaves no receipt; those that concern a turn that is not there leave one warning event.
--
-- KEYS     meta        HASH
--          head        HASH
--          work        HASH
--          inbox       STREAM  <n>-0, bodies
--          receipts    HASH    submission -> receipt
--          settled     ZSET    submission by settlement time
--          journal     STREAM
--          leases      ZSET
--          owners      HASH
--          alerts      HASH
--          ready       ZSET
--          solo        ZSET
--          timers      ZSET
--          vt          HASH
--          waiting     HASH
--          sessions    ZSET    the partition's catalogue by creation time
--          checkpoint  STREAM
--          transcript  STREAM
--          turns       STREAM
-- ARGS     partitions  int
--          layout      int
--          replid      str
--          not_after   int
--          session     str
--          id          str   of the submission
--          after       str   a submission of the session that must be accepted first, or ''
--          id_time     int   the time inside a UUIDv7, '' for other ids
--          digest      str   of the content
--          class       str   turn, answer or ctl
--          policy      str   enqueue, steer, join, latest, interrupt, rollback, reject, debounce; '': agent's
--          key         str   what `latest` and `debounce` replace and gather
--          target      str   an answer's wait, or the turn that a control names
--          body        str
--          due         int   when it may run, 0 for now
--          delay       int   how long after its acceptance it may run, ms; 0 for at once
--          quiet       int   debounce: how long to wait for more
--          max_wait    int   debounce: how long at most since the first
--          priority    int   -2 .. 2
--          may_create  0|1
--          route       str
--          agent       str
--          tenant      str
--          context     str   JSON, fixed at creation
--          parent      str
--          kind        str   of the event to write, '' for none
--          detail      str   its body
--          max_depth   int
--          max_bytes   int
--          max_size    int
--          window      int   how long settled receipts are kept, ms
-- LIST     defaults    agent policy key quiet max_wait
-- SEALED   body         submission
--          context      context
--          detail       event
-- REPLIES  ACCEPTED    n seq turn status ready_count position agent route {replaced}
--          MERGED      seq turn      the turn has a control already
--          DUPLICATE   n seq turn status ending agent route position
--          MISMATCH    accepted_ms digest   the id was accepted with other content
--          ORDER                     `after` is not accepted yet: ask again behind it
--          UNKNOWN                   no such session, and it may not be created
--          DELETED                   it was deleted, and may not be created again
--          CLOSED
--          ROUTE       route agent   the session waits elsewhere: ask again with that key
--          STALE                     nobody waits for this answer
--          ANSWERED                  the wait has its answer
--          NO_TURN                   no turn to control
--          STALE_TURN  turn          another turn runs
--          TOO_BIG     size limit
--          TOO_OLD                   older than the deduplication floor
--          SKEW                      from the future
--          TOO_FAR     limit         it would run more than so many ms from now
--          BUSY        scope depth limit retry_ms
-- USES     clock fleet session journal settle waiting place lease full

local RECEIPTS = 4096
local HORIZON = 600000 -- how long a client library repeats, and how far ahead a clock may be
local AHEAD = 31622400000 -- 366 days: what is accepted keeps its receipt until it has run

local refused, epoch, pressure = fleet_guard(meta, partitions, layout, replid, not_after)
if refused then return refused end

local key_of = {head = head, work = work, inbox = inbox, receipts = receipts, settled = settled,
  journal = journal}
local at = {leases = leases, owners = owners, alerts = alerts, ready = ready, solo = solo,
  timers = timers, vt = vt, waiting = waiting}
local s = load(session, key_of)
read_owner(s, at)

local function position_of(n)
  return int(#positions(s, function(input) return is_waiting(input) and input.n < n end))
end

local receipt = redis.call('HGET', receipts, id)
if receipt then
  local r = split(receipt)
  if r[1] ~= digest then return reply('MISMATCH', r[4], r[1]) end
  return reply('DUPLICATE', r[2], r[3], get(s, 'turn'), get(s, 'status'), r[5], get(s, 'agent'),
    get(s, 'route'), position_of(tonumber(r[2])))
end

if after ~= '' and redis.call('HEXISTS', receipts, after) == 0 then return reply('ORDER') end

refused = unfit(s)
if refused then return refused end
local status = get(s, 'status')
local gone = not s.exists or status == 'deleted'
local turn = get(s, 'turn')
if policy == '' then
  local whose = gone and agent or get(s, 'agent')
  policy = 'enqueue'
  for _, default in ipairs(defaults) do
    if default.agent == whose then
      policy, key, quiet, max_wait = default.policy, default.key, default.quiet, default.max_wait
    end
  end
end
due, delay = tonumber(due), tonumber(delay)
if delay > 0 then due = math.max(due, now + delay) end
-- What has a time of its own is not gathered, and stops nothing before that time.
if due > now and (policy == 'debounce' or policy == 'interrupt' or policy == 'rollback') then
  policy, key = 'enqueue', ''
end

local function refuse(...)
  local word = ...
  -- One warning for one request, however often it is repeated.
  local this = table.concat({id, word, turn}, '|')
  if s.exists and not gone and get(s, 'refused') ~= this then
    set(s, 'refused', this)
    event(s, epoch, 'warning', id, turn, '', '{"code":"' .. string.lower(word) .. '"}')
    save(s)
  end
  return reply(...)
end

if gone and may_create ~= '1' then
  if s.exists then return reply('DELETED') end
  return reply('UNKNOWN')
end
if status == 'closed' then return reply('CLOSED') end
if not gone and get(s, 'route') ~= route then
  return reply('ROUTE', get(s, 'route'), get(s, 'agent'))
end
if class == 'answer' then
  local wait = s.waits[target]
  if not wait then return refuse('STALE') end
  if wait.answer > 0 then return refuse('ANSWERED') end
elseif class == 'ctl' then
  if turn == '' then return refuse('NO_TURN') end
  if target ~= '' and target ~= turn then return refuse('STALE_TURN', turn) end
end
if #body > tonumber(max_size) then return reply('TOO_BIG', int(#body), max_size) end
if id_time ~= '' then
  if tonumber(id_time) < num(s, 'dedup_floor') then return reply('TOO_OLD') end
  if tonumber(id_time) > now + HORIZON then return reply('SKEW') end
end
if due > now + AHEAD then return reply('TOO_FAR', int(AHEAD)) end

-- Settled receipts that may be forgotten: past the window, or too many and past the horizon. One
-- that leaves early raises the floor below which an unknown UUIDv7 is refused.
local function uuid7_time(name)
  local high, low = string.match(name, '^(%x%x%x%x%x%x%x%x)%-(%x%x%x%x)%-7%x%x%x%-')
  return high and #name == 36 and tonumber(high .. low, 16)
end
local count = redis.call('ZCARD', settled) - 1
local forget, floor = {}, num(s, 'dedup_floor')
local aged = count >= RECEIPTS and now - HORIZON or now - window
local oldest = redis.call('ZRANGE', settled, '-inf', int(aged), 'BYSCORE', 'LIMIT', 0, 8,
  'WITHSCORES')
for i = 1, #oldest, 2 do
  local early = tonumber(oldest[i + 1]) > now - window
  local time = uuid7_time(oldest[i])
  if not early or time then
    forget[#forget + 1] = oldest[i]
    if early then floor = math.max(floor, math.min(time, now - HORIZON)) end
  end
end
-- What an open turn waits for, and its first control, come in whatever else is full.
local exempt = class == 'answer' or (class == 'ctl' and get(s, 'ctl_turn') == '')
if count >= RECEIPTS and #forget == 0 and not exempt then
  return reply('BUSY', 'receipts', int(count), int(RECEIPTS), int(HORIZON))
end

if class == 'turn' then
  -- What only waits for a time of its own is nothing to do yet; what gathers messages is.
  local depth, bytes, at_work = 0, #body, 0
  for _, input in pairs(s.inputs) do
    if input.class ~= 'answer' then
      depth, bytes = depth + 1, bytes + input.bytes
      local gathers = input.class == 'join' and input.key == 'debounce'
      if input.due <= now or gathers then at_work = at_work + 1 end
    end
  end
  if policy == 'reject' and (turn ~= '' or at_work > 0) then
    return reply('BUSY', 'turn', int(at_work), '0', '1000')
  end
  if depth >= tonumber(max_depth) then
    return reply('BUSY', 'inbox', int(depth), max_depth, '1000')
  end
  if bytes > tonumber(max_bytes) then
    return reply('BUSY', 'inbox bytes', int(bytes - #body), max_bytes, '1000')
  end
  local full, of = still_full(meta), gone and tenant or get(s, 'tenant')
  if full then
    local waits, may = full_of(full, of)
    if of ~= '' and waits then return reply('BUSY', 'tenant', waits, may, '1000') end
    waits, may = full_of(full, '*')
    if waits then return reply('BUSY', 'fleet', waits, may, '1000') end
  end
  if pressure then return reply('BUSY', 'memory', pressure[1], pressure[2], '5000') end
end

-- From here on everything is written. The first write is refused when memory is full.
local merged = class == 'ctl' and get(s, 'ctl_turn') ~= ''
local n = class == 'ctl' and 0 or num(s, 'n') + 1
local seq = num(s, 'seq') + (kind ~= '' and 1 or 0)
local base = {}
if not s.exists then
  base = redis.call('HMGET', meta, 'floor_fence', 'floor_seq', 'floor_rev', 'floor_n',
    'floor_turns', 'floor_transcript', 'floor_life')
  if n > 0 then n = n + (tonumber(base[4]) or 0) end
  seq = seq + (tonumber(base[2]) or 0)
end
redis.call('HSET', receipts, id, table.concat({digest, int(n), int(seq), int(now), '', '', '', ''},
  '|'))
if #forget > 0 then
  redis.call('HDEL', receipts, unpack(forget))
  redis.call('ZREM', settled, unpack(forget))
  set(s, 'dedup_floor', floor)
end

if gone then
  -- Every key exists from here on: a missing one cannot be told from one that has moved.
  for _, stream in ipairs({inbox, journal, checkpoint, transcript, turns}) do
    if redis.call('EXISTS', stream) == 0 then
      redis.call('XADD', stream, '0-1', '_', '')
      redis.call('XDEL', stream, '0-1')
    end
    redis.call('PERSIST', stream)
  end
  -- No id of a submission has a bar in it.
  redis.call('HSET', work, '_', '')
  redis.call('HSET', receipts, '|', '')
  redis.call('ZADD', settled, '+inf', '|')
  redis.call('PERSIST', receipts)
  redis.call('PERSIST', settled)
  if not s.exists then
    for i, field in ipairs({'fence', 'seq', 'rev', 'n', 'turns', 'transcript_n', 'life'}) do
      set(s, field, tonumber(base[i]) or 0)
    end
  end
  set(s, 'v', layout)
  set(s, 'life', num(s, 'life') + 1)
  set(s, 'status', 'idle')
  set(s, 'route', route)
  set(s, 'agent', agent)
  set(s, 'tenant', tenant)
  set(s, 'context', context)
  set(s, 'parent', parent)
  set(s, 'created_ms', math.max(now, num(s, 'at_ms')))
  set(s, 'first_seq', num(s, 'seq') + 1)
  set(s, 'first_turn', num(s, 'turns') + 1)
  redis.call('ZADD', sessions, get(s, 'created_ms'), session)
end
if class == 'turn' then set(s, 'priority', priority) end

if kind ~= '' then event(s, epoch, kind, id, class == 'turn' and '' or turn, '', detail) end

local function control(kind_of, sub)
  set(s, 'ctl_turn', turn)
  if get(s, 'ctl_kind') ~= 'rollback' then set(s, 'ctl_kind', kind_of) end
  if sub ~= '' then
    set(s, 'ctl_sub', sub)
    set(s, 'ctl_body', body)
  end
  set(s, 'ctl_epoch', num(s, 'ctl_epoch') + 1)
end

local replaced = {}
if class == 'ctl' then
  if merged then
    settle(s, id, nil, 'completed', turn, num(s, 'seq'))
    save(s)
    return reply('MERGED', int(num(s, 'seq')), turn)
  end
  control('interrupt', id)
elseif class == 'answer' then
  local wait = s.waits[target]
  wait.answer = n
  redis.call('XADD', inbox, int(n) .. '-0', 'sub', id, 'at', int(now), 'body', body)
  put_input(s, {n = n, class = 'answer', due = 0, turn = turn, group = '', sub = id, key = target,
    bytes = #body})
  put_wait(s, target, wait)
else
  if policy == 'latest' then
    for _, older in ipairs(positions(s, function(input)
      return is_waiting(input) and input.key == key
    end)) do
      replaced[#replaced + 1] = s.inputs[older].sub
      settle_apart(s, epoch, s.inputs[older], 'superseded', id)
    end
  end
  if (policy == 'interrupt' or policy == 'rollback') and turn ~= '' then control(policy, '') end
  if policy == 'debounce' then
    -- Only what may share a turn with it, and no turn has given back.
    local gathered = positions(s, function(input)
      return is_waiting(input) and input.class == 'join' and input.key == key and input.group == ''
    end)
    local first = now
    if gathered[1] then
      local entry = redis.call('XRANGE', inbox, int(gathered[1]) .. '-0', int(gathered[1]) .. '-0')
      first = entry[1] and tonumber(entry[1][2][4]) or now
    end
    due = math.min(now + quiet, first + max_wait)
    for _, older in ipairs(gathered) do
      s.inputs[older].due = due
      put_input(s, s.inputs[older])
    end
  end
  redis.call('XADD', inbox, int(n) .. '-0', 'sub', id, 'at', int(now), 'body', body)
  local taken_as = (policy == 'steer' and 'steer')
    or ((policy == 'join' or policy == 'debounce') and 'join') or 'turn'
  put_input(s, {n = n, class = taken_as, due = due, turn = '', group = '', sub = id, key = key,
    bytes = #body})
end
if n > 0 then set(s, 'n', n) end
-- A steer tells nobody: its turn looks for it where it can be taken, at the next step boundary.
if s.owner and get(s, 'ctl_turn') ~= '' then
  redis.call('HSET', alerts, session, int(num(s, 'ctl_epoch')))
end
status = place(s, at)
return reply('ACCEPTED', int(n), int(seq), turn, status,
  int(redis.call('ZCARD', ready) + redis.call('ZCARD', solo)), position_of(n), get(s, 'agent'),
  get(s, 'route'), replaced)
