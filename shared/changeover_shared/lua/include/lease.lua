-- The lease: `<fence>|<incarnation>|<nonce>` in `owners`, its expiry as the score in `leases`.

local function read_owner(s, at)
  s.owner = redis.call('HGET', at.owners, s.id)
  s.expires = tonumber(redis.call('ZSCORE', at.leases, s.id)) or 0
end

local function fence_of(token)
  return string.match(token, '^(%d+)|')
end

local function incarnation_of(token)
  return string.match(token, '^%d+|([^|]*)|')
end

local function drop_lease(s, at)
  redis.call('HDEL', at.owners, s.id)
  redis.call('ZREM', at.leases, s.id)
  redis.call('HDEL', at.stalls, s.id)
  redis.call('HDEL', at.alerts, s.id)
  s.owner, s.expires = false, 0
end
