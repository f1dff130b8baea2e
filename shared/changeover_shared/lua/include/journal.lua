-- Events: `seq` is counted here, beside the XADD, so it is dense by construction.

local function event(s, epoch, kind, sub, turn, step, body)
  local seq = num(s, 'seq') + 1
  local at = math.max(now, num(s, 'at_ms'))
  if get(s, 'epoch') ~= epoch then
    set(s, 'epoch', epoch)
    set(s, 'epoch_seq', seq)
  end
  set(s, 'seq', seq)
  set(s, 'at_ms', at)
  redis.call('XADD', s.key.journal, int(seq) .. '-0', 'type', kind, 'at', int(at),
    'fence', int(num(s, 'fence')), 'epoch', epoch, 'sub', sub, 'turn', turn, 'step', step,
    'body', body)
  return seq
end
