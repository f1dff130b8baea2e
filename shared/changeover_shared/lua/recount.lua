-- Count anew what waits in sessions of a partition.
--
-- The sums that `place` keeps are those of their sessions as long as these scripts alone write; this
-- makes them so again after a backup, a hand at the keys or an older release. A new count begins
-- with nothing; a session that nobody has named yet is in it as soon as anything happens to it.
--
-- KEYS     meta        HASH
--          waiting     HASH
-- EACH     head        HASH
--          work        HASH
-- ARGS     partitions  int
--          layout      int
--          replid      str
--          count       int   which count this is; a higher one than before begins with nothing
-- LIST     sessions    id
-- REPLIES  OK
-- USES     clock fleet session waiting
-- FLAGS    allow-oom

local refused = fleet_guard(meta, partitions, layout, replid)
if refused then return refused end

if tonumber(count) > (tonumber(redis.call('HGET', waiting, '!')) or 0) then
  redis.call('UNLINK', waiting)
  redis.call('HSET', waiting, '!', count)
end
for i, asked in ipairs(sessions) do
  local s = load(asked.id, EACH[i])
  if s.exists and get(s, 'status') ~= 'deleted' then
    count_waiting(s, {waiting = waiting})
    save(s)
  end
end
return reply('OK')
