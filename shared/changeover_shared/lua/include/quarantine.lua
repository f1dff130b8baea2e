-- Stop a session until an operator acts, and let it go on. `place` indexes it afterwards.
--
-- `stopped` says why: the body of the event, with `quarantine_no` as the number of this stop.

local function quarantine_session(s, quarantine, why)
  set(s, 'status', 'quarantined')
  set(s, 'quarantine_no', num(s, 'quarantine_no') + 1)
  set(s, 'stopped', why)
  redis.call('ZADD', quarantine, int(now), s.id)
end

-- What it has lost so far does not count any more.
local function end_quarantine(s, quarantine)
  set(s, 'status', 'idle')
  for _, field in ipairs({'stopped', 'attempts', 'attempts0', 'lost_ms', 'lapsed_error', 'tag',
    'tag_kept', 'not_before'}) do set(s, field, '') end
  redis.call('ZREM', quarantine, s.id)
end
