-- Give submissions up that nobody will run any more.

local function dead_letter(s, epoch, input, turn)
  local seq = event(s, epoch, 'submission_dead_lettered', input.sub, turn, '', '{}')
  settle(s, input.sub, input.n, 'dead_lettered', turn, seq)
end

-- The open turn ends without having come to anything: all its inputs or none.
local function give_turn_up(s, epoch, turns, record)
  local turn = get(s, 'turn')
  for _, n in ipairs(positions(s, function(input) return input.turn == turn end)) do
    if s.inputs[n].class == 'answer' then
      settle_apart(s, epoch, s.inputs[n], 'superseded', '')
    else
      dead_letter(s, epoch, s.inputs[n], turn)
    end
  end
  if get(s, 'ctl_sub') ~= '' then
    settle(s, get(s, 'ctl_sub'), nil, 'completed', turn, num(s, 'seq'))
  end
  for name in pairs(s.waits) do drop_wait(s, name) end
  if record ~= '' then
    redis.call('XADD', turns, string.sub(turn, 3) .. '-0', 'body', record)
  end
  for _, field in ipairs({'turn', 'parked', 'ctl_turn', 'ctl_kind', 'ctl_sub', 'ctl_body'}) do
    set(s, field, '')
  end
end
