-- Extend leases that the caller still holds. An expired one is never revived.
--
-- A session past its stall time is not extended: a keeper thread must not keep a hung step alive.
--
-- KEYS     leases   ZSET
--          owners   HASH
--          stalls   HASH  session -> when its running step is overdue
--          alerts   HASH  session -> control epoch that waits for the holder
-- ARGS     ttl      int
-- LIST     held     id token
-- REPLIES  OK       {word remaining_ms alert fence} per lease: OK, LOST, GONE, EXPIRED
-- USES     clock
-- FLAGS    allow-oom

local answers = {}
for i, lease in ipairs(held) do
  local owner = redis.call('HGET', owners, lease.id)
  local expires = tonumber(redis.call('ZSCORE', leases, lease.id)) or 0
  if not owner then
    answers[i] = {'GONE', '0', '0', '0'}
  elseif owner ~= lease.token then
    answers[i] = {'LOST', '0', '0', string.match(owner, '^(%d+)|')}
  elseif expires <= now then
    answers[i] = {'EXPIRED', '0', '0', '0'}
  else
    local stall = tonumber(redis.call('HGET', stalls, lease.id)) or (now + ttl)
    local extended = math.max(expires, math.min(now + ttl, stall))
    if extended > expires then redis.call('ZADD', leases, int(extended), lease.id) end
    answers[i] = {'OK', int(extended - now), redis.call('HGET', alerts, lease.id) or '0', '0'}
  end
end
return reply('OK', answers)
