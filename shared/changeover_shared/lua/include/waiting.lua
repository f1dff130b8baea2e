-- Keep the partition's sums of what waits: `*` of all its sessions, and one of each tenant. The head
-- says what it has added to them and in which count, so each script makes its own part right, and
-- a sum is that of its sessions whatever was lost. `!` is which count this is, see `recount`.
local function count_waiting(s, at)
  local mine = #positions(s, is_waiting)
  local before = get(s, 'counted')
  if mine == 0 and before == '' then return end
  local count = redis.call('HGET', at.waiting, '!') or '0'
  local added, counted_in = string.match(before, '^(%d+)|(%d+)$')
  local more = mine - (counted_in == count and tonumber(added) or 0)
  if more ~= 0 then
    local tenant = get(s, 'tenant')
    for _, whose in ipairs(tenant ~= '' and {'*', tenant} or {'*'}) do
      if redis.call('HINCRBY', at.waiting, whose, int(more)) <= 0 then
        redis.call('HDEL', at.waiting, whose)
      end
    end
  end
  set(s, 'counted', mine > 0 and int(mine) .. '|' .. count or '')
end
