-- Place sessions whose lease or due time has passed. Any worker may, whatever it serves.
--
-- KEYS     meta        HASH
--          leases      ZSET
--          owners      HASH
--          stalls      HASH
--          alerts      HASH
--          timers      ZSET
--          vt          HASH  virtual time
--          waiting     HASH  how many submissions wait, of all and of each tenant
-- EACH     head        HASH
--          work        HASH
--          ready       ZSET  of the session's own route
--          solo        ZSET
-- ARGS     partitions  int
--          layout      int
--          replid      str
--          max_ttl     int   a lease beyond now + max_ttl is cut to it
-- LIST     sessions    id route
-- REPLIES  OK          {word status} per session: PLACED, BUSY (lease lives), NONE (nothing to
--                      do), ROUTE (it waits elsewhere)
-- USES     clock fleet session waiting place lease
-- FLAGS    allow-oom

local refused = fleet_guard(meta, partitions, layout, replid)
if refused then return refused end

local at = {leases = leases, owners = owners, stalls = stalls, alerts = alerts, timers = timers,
  vt = vt, waiting = waiting}

-- For how long its holder has held it without progress. One that was evicted may have been dead
-- for longer than that; it did not run for longer than its step was given.
local function lost_by(s)
  local till = s.expires > 0 and s.expires
    or tonumber(redis.call('HGET', stalls, s.id)) or now
  return math.max(0, math.min(now, till) - num(s, 'began_ms'))
end

local found = {}
for i, asked in ipairs(sessions) do
  local s = load(asked.id, EACH[i])
  read_owner(s, at)
  s.at = setmetatable({ready = EACH[i].ready, solo = EACH[i].solo}, {__index = at})
  local status = get(s, 'status')
  if not s.exists or status == 'closed' or status == 'quarantined' or status == 'deleted' then
    s.word = 'NONE'
  elseif get(s, 'route') ~= asked.route then
    s.word = 'ROUTE'
  elseif s.owner and s.expires > now then
    s.word = 'BUSY'
  else
    s.word = 'PLACED'
  end
  found[i] = s
end

local words = {}
for i, s in ipairs(found) do
  if s.word == 'NONE' then
    redis.call('ZREM', timers, s.id)
    redis.call('ZREM', leases, s.id)
  elseif s.word == 'BUSY' and s.expires > now + max_ttl then
    redis.call('ZADD', leases, int(now + max_ttl), s.id)
  elseif s.word == 'PLACED' then
    if s.owner then
      set(s, 'lapsed', s.owner)
      set(s, 'lapsed_why', s.expires == 0 and 'evicted' or 'taken_over')
      set(s, 'lost_ms', num(s, 'lost_ms') + lost_by(s))
      drop_lease(s, at)
    else
      redis.call('ZREM', leases, s.id)
    end
    place(s, s.at)
  end
  words[i] = {s.word, get(s, 'status')}
end
return reply('OK', words)
