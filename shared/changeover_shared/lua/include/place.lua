-- Where a session is indexed: `ready`, `leases`, `timers` or nowhere. Nothing else touches an index.
--
-- Ready order is start-time fair queueing per partition and route: a tenant's next session starts
-- at S = max(V, F), the tenant's finish moves to S + 1000, a priority level is a head start of 8
-- grants. A session is charged once per period of readiness: `tag` survives takeovers.

local SUSPECT = 3 -- attempts without progress after which only an empty process may claim
local COST = 1000
local HEAD_START = 8000

-- Decide without writing: 'held', 'ready', 'timers' with a time, or 'none'.
local function where(s)
  local status = get(s, 'status')
  if status == 'quarantined' or status == 'closed' or status == 'deleted' then return 'none' end
  if s.owner then return 'held' end
  local ctl = get(s, 'ctl_turn') ~= ''
  if num(s, 'not_before') > now and not ctl then return 'timers', num(s, 'not_before') end
  local earliest
  if get(s, 'turn') == '' then
    for _, input in pairs(s.inputs) do
      if is_waiting(input) then
        if input.due <= now then return 'ready' end
        earliest = math.min(earliest or input.due, input.due)
      end
    end
  else
    if get(s, 'parked') ~= '1' or ctl then return 'ready' end
    for _, wait in pairs(s.waits) do
      if wait.answer > 0 then return 'ready' end
      if wait.deadline > 0 then
        if wait.deadline <= now then return 'ready' end
        earliest = math.min(earliest or wait.deadline, wait.deadline)
      end
    end
  end
  if earliest then return 'timers', earliest end
  return 'none'
end

local function tagged(s, vt)
  if get(s, 'tag') == '' then
    local virtual = tonumber(redis.call('HGET', vt, 'V:' .. get(s, 'route'))) or 0
    local mine = 'F:' .. get(s, 'route') .. ':' .. get(s, 'tenant')
    local start = math.max(virtual, tonumber(redis.call('HGET', vt, mine)) or 0)
    redis.call('HSET', vt, mine, int(start + COST))
    set(s, 'tag', start)
  end
  return num(s, 'tag') - HEAD_START * num(s, 'priority')
end

-- Index the session, count what waits in it, set its status and save its head. Returns the status.
local function place(s, at)
  local index, time = where(s)
  local status = get(s, 'status')
  if index == 'held' then
    status = 'held'
  elseif index == 'ready' then
    status = 'ready'
  elseif status ~= 'quarantined' and status ~= 'closed' and status ~= 'deleted' then
    status = get(s, 'turn') ~= '' and 'parked' or 'idle'
  end
  local suspect = num(s, 'attempts') >= SUSPECT
  if index == 'ready' then
    redis.call('ZADD', suspect and at.solo or at.ready, int(tagged(s, at.vt)), s.id)
    redis.call('ZREM', suspect and at.ready or at.solo, s.id)
  else
    redis.call('ZREM', at.ready, s.id)
    redis.call('ZREM', at.solo, s.id)
  end
  if index == 'timers' then
    redis.call('ZADD', at.timers, int(time), s.id)
  else
    redis.call('ZREM', at.timers, s.id)
  end
  set(s, 'status', status)
  count_waiting(s, at)
  save(s)
  return status
end
