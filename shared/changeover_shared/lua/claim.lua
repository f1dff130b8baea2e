-- Grant named ready sessions to one incarnation. All or none of a session; each on its own merits.
--
-- Takes from `ready` only; an index entry is never a right, `place` decides again. The nonce makes
-- a repeat find its own grant. What a refused session shows wrongly in an index is repaired.
--
-- KEYS     meta         HASH
--          leases       ZSET
--          owners       HASH
--          stalls       HASH
--          alerts       HASH
--          timers       ZSET
--          quarantine   ZSET  session by the time it was quarantined
--          vt           HASH
--          waiting      HASH
--          ready        ZSET
--          solo         ZSET
-- EACH     head         HASH
--          work         HASH
--          journal      STREAM
--          checkpoint   STREAM
--          inbox        STREAM
-- ARGS     partitions   int
--          layout       int
--          replid       str
--          not_after    int
--          route        str
--          incarnation  str
--          nonce        str
--          ttl          int
--          max_step     int   how long the first step may take
--          is_solo      0|1   the caller holds nothing else
--          max_attempts int
--          no_progress  int   for how long it may be held without progress, ms; 0 for ever
-- LIST     sessions     id
-- REPLIES  OK           {word ...} per session: GRANTED {fence remaining_ms lapsed head work
--                       checkpoint inbox}, BUSY {remaining_ms}, QUARANTINED {why}, or
--                       one of USED, LATE, NONE, PAUSED, SUSPECT
-- USES     clock fleet session journal waiting place lease quarantine paused

local REPLY_BYTES = 65536
local REPLY_INPUTS = 16

-- A late copy still finds its own grants; only new ones are refused, session by session.
local refused, epoch = fleet_guard(meta, partitions, layout, replid)
if refused then return refused end
local late = tonumber(not_after) < now
local paused = is_paused(meta, route)

local at = {leases = leases, owners = owners, stalls = stalls, alerts = alerts, timers = timers,
  vt = vt, waiting = waiting, ready = ready, solo = solo}

-- Its holders have lost more time than it may be held without progress, and more than the step
-- that is next was given. Only time under a lease counts, not what it waited for.
local function out_of_time(s)
  local most = tonumber(no_progress)
  return most > 0 and num(s, 'lost_ms') >= math.max(most, num(s, 'step_ms'))
end

local function judge(s)
  local status = get(s, 'status')
  if not s.exists or status == 'deleted' or status == 'closed' or status == 'quarantined' then
    return 'NONE'
  end
  if get(s, 'route') ~= route or unfit(s) then return 'NONE' end
  if s.owner and s.expires > now then
    local mine = incarnation_of(s.owner) == incarnation and get(s, 'used_nonce') == nonce
    return mine and 'AGAIN' or 'BUSY'
  end
  if get(s, 'used_nonce') == nonce then return 'USED' end
  if late then return 'LATE' end
  if where(s) ~= 'ready' then return 'NONE' end
  if paused then return 'PAUSED' end
  if num(s, 'attempts') >= tonumber(max_attempts) or out_of_time(s) then return 'QUARANTINED' end
  if num(s, 'attempts') >= SUSPECT and is_solo ~= '1' then return 'SUSPECT' end
  return 'GRANTED'
end

-- A finish that virtual time has passed means nothing any more. Each grant looks at a few, so that
-- tenants that went away are forgotten.
local function forget_finishes(virtual)
  local prefix = 'F:' .. route .. ':'
  local sample = redis.call('HRANDFIELD', vt, 4, 'WITHVALUES')
  for i = 1, #sample, 2 do
    if string.sub(sample[i], 1, #prefix) == prefix and tonumber(sample[i + 1]) <= virtual then
      redis.call('HDEL', vt, sample[i])
    end
  end
end

local function grant(s)
  local fence = num(s, 'fence') + 1
  set(s, 'fence', fence)
  set(s, 'used_nonce', nonce)
  set(s, 'batch', 0)
  set(s, 'batch_seq', 0)
  set(s, 'parked', '')
  set(s, 'not_before', '')
  set(s, 'deferred', '')
  set(s, 'attempts0', num(s, 'attempts'))
  set(s, 'attempts', num(s, 'attempts') + 1)
  set(s, 'began_ms', now)
  set(s, 'lapsed_error', '')
  s.owner = table.concat({int(fence), incarnation, nonce}, '|')
  redis.call('HSET', owners, s.id, s.owner)
  redis.call('HSET', stalls, s.id, int(now + max_step))

  local virtual = math.max(tonumber(redis.call('HGET', vt, 'V:' .. route)) or 0, num(s, 'tag'))
  redis.call('HSET', vt, 'V:' .. route, int(virtual))
  forget_finishes(virtual)

  -- `lapsed` stays until this holder ends, so that a repeat is answered with it as well.
  local before = get(s, 'lapsed')
  if before ~= '' and incarnation_of(before) ~= incarnation then
    event(s, epoch, 'worker_changed', '', get(s, 'turn'), '', '{"reason":"'
      .. get(s, 'lapsed_why') .. '","previous":"' .. incarnation_of(before)
      .. '","current":"' .. incarnation .. '"}')
  end
end

local function give_no_more(s)
  local why = {'"attempts":' .. int(num(s, 'attempts'))}
  if num(s, 'attempts') < tonumber(max_attempts) then why[#why + 1] = '"cause":"time"' end
  -- What its supervisor saw of the last holder's death, as JSON.
  if get(s, 'lapsed_error') ~= '' then why[#why + 1] = '"error":' .. get(s, 'lapsed_error') end
  local before = get(s, 'lapsed')
  if before ~= '' then why[#why + 1] = '"worker":"' .. incarnation_of(before) .. '"' end
  s.why = '{' .. table.concat(why, ',') .. '}'
  quarantine_session(s, quarantine, s.why)
  event(s, epoch, 'session_quarantined', '', get(s, 'turn'), '', s.why)
end

-- The oldest bodies that fit beside the checkpoint, so that a claim is one round trip.
local function granted(s)
  local newest = redis.call('XREVRANGE', s.key.checkpoint, '+', '-', 'COUNT', 1)
  local body = newest[1] and newest[1][2][2] or ''
  if #body > REPLY_BYTES then body = '' end
  local room, count = REPLY_BYTES - #body, 0
  for _, n in ipairs(positions(s, function() return true end)) do
    room = room - s.inputs[n].bytes
    if room < 0 or count == REPLY_INPUTS then break end
    count = count + 1
  end
  local inputs = count > 0 and redis.call('XRANGE', s.key.inbox, '-', '+', 'COUNT', count) or {}
  local fields = {}
  for field, value in pairs(s.head) do
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
  return {'GRANTED', fence_of(s.owner), int(s.expires - now), get(s, 'lapsed'), fields, s.flat_work,
    body, inputs}
end

local found = {}
for i, asked in ipairs(sessions) do
  local s = load(asked.id, EACH[i])
  read_owner(s, at)
  s.word = judge(s)
  found[i] = s
end

-- Grants first: their first write is one that a full memory refuses, a repair's may not be.
local answers = {}
for i, s in ipairs(found) do
  if s.word == 'GRANTED' or s.word == 'AGAIN' then
    if s.word == 'GRANTED' then grant(s) end
    s.expires = now + ttl
    redis.call('ZADD', leases, int(s.expires), s.id)
    place(s, at)
    answers[i] = granted(s)
  end
end
for i, s in ipairs(found) do
  if s.word == 'BUSY' then
    answers[i] = {'BUSY', int(s.expires - now)}
  elseif not answers[i] then
    if s.word == 'QUARANTINED' then give_no_more(s) end
    if not s.exists or get(s, 'route') ~= route then
      redis.call('ZREM', ready, s.id)
      redis.call('ZREM', solo, s.id)
    elseif s.word ~= 'USED' and s.word ~= 'PAUSED' and not s.owner then
      place(s, at)
    end
    answers[i] = {s.word, s.why}
  end
end
return reply('OK', answers)
