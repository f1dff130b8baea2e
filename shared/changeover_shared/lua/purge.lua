-- Forget what the deduplication window has passed by: settled receipts, and tombstones.
--
-- A tombstone's counters go into the partition's floors, where a new session begins, so that no
-- fence and no number is ever given twice.
--
-- KEYS     meta        HASH    floor_<counter>
--          graves      ZSET
-- EACH     head        HASH
--          receipts    HASH
--          settled     ZSET
--          journal     STREAM
-- ARGS     partitions  int
--          layout      int
--          replid      str
--          window      int   ms
--          most        int   how many receipts of one session are forgotten at most
-- LIST     sessions    id
-- REPLIES  OK          {word count} per session: PURGED (its tombstone is gone), KEPT (so many
--                      receipts were forgotten), NONE
-- USES     clock fleet session
-- FLAGS    allow-oom

local refused = fleet_guard(meta, partitions, layout, replid)
if refused then return refused end

local COUNTERS = {'fence', 'seq', 'rev', 'n', 'turns', 'transcript_n', 'life'}

local function bury(s)
  for _, field in ipairs(COUNTERS) do
    local name = field == 'transcript_n' and 'floor_transcript' or 'floor_' .. field
    local floor = tonumber(redis.call('HGET', meta, name)) or 0
    if num(s, field) > floor then redis.call('HSET', meta, name, int(num(s, field))) end
  end
  redis.call('ZREM', graves, s.id)
  redis.call('UNLINK', s.key.head, s.key.receipts, s.key.settled, s.key.journal)
end

local function forget(s)
  local aged = redis.call('ZRANGE', s.key.settled, '-inf', int(now - window), 'BYSCORE', 'LIMIT',
    0, most)
  for _, sub in ipairs(aged) do
    redis.call('HDEL', s.key.receipts, sub)
    redis.call('ZREM', s.key.settled, sub)
  end
  return #aged
end

local words = {}
for i, asked in ipairs(sessions) do
  local s = {id = asked.id, key = EACH[i], head = {}}
  local names = {'status', 'deleted_ms', unpack(COUNTERS)}
  local found = redis.call('HMGET', EACH[i].head, unpack(names))
  for k, field in ipairs(names) do s.head[field] = found[k] or nil end
  if not found[1] then
    redis.call('ZREM', graves, s.id)
    words[i] = {'NONE', '0'}
  elseif found[1] ~= 'deleted' then
    redis.call('ZREM', graves, s.id)
    words[i] = {'KEPT', int(forget(s))}
  elseif num(s, 'deleted_ms') + window > now then
    words[i] = {'KEPT', '0'}
  else
    bury(s)
    words[i] = {'PURGED', '0'}
  end
end
return reply('OK', words)
