-- End one submission: its receipt, the age index, its body and its place in the open work.
--
-- A receipt is digest|n|seq|accepted_ms|ending|turn|end_seq|ended_ms; an ended one never changes.

local function settle(s, sub, n, ending, turn, end_seq)
  if n then
    redis.call('XDEL', s.key.inbox, int(n) .. '-0')
    redis.call('HDEL', s.key.work, int(n))
    s.inputs[n] = nil
  end
  local receipt = redis.call('HGET', s.key.receipts, sub)
  if not receipt then return end
  local parts = split(receipt)
  if parts[5] ~= '' then return end
  parts[5], parts[6], parts[7], parts[8] = ending, turn, int(end_seq), int(now)
  redis.call('HSET', s.key.receipts, sub, table.concat(parts, '|'))
  redis.call('ZADD', s.key.settled, int(now), sub)
end

-- What ends outside a turn has an event of its own.
local function settle_apart(s, epoch, input, ending, by)
  local seq = event(s, epoch, 'submission_' .. ending, input.sub, '', '',
    by ~= '' and '{"by":"' .. by .. '"}' or '{}')
  settle(s, input.sub, input.n, ending, '', seq)
end
