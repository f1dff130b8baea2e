-- Stop a session until an operator acts. `place` then takes it out of every index.

local function quarantine_session(s, quarantine)
  set(s, 'status', 'quarantined')
  set(s, 'quarantine_no', num(s, 'quarantine_no') + 1)
  redis.call('ZADD', quarantine, int(now), s.id)
end
