-- Take from a session what retention does not keep: old events, turn records, transcript items.
--
-- The newest turn's events stay, and every item that the context still needs. A follower that
-- comes from before `first_seq` is told of the gap.
--
-- KEYS     meta        HASH
--          head        HASH
--          journal     STREAM
--          transcript  STREAM
--          turns       STREAM
-- ARGS     partitions  int
--          layout      int
--          replid      str
--          session     str
--          events      int   how many events are kept
--          records     int   how many turn records are kept
--          items_from  int   the first transcript item that is kept, 0 to leave all
-- REPLIES  OK          first_seq
--          NONE        no such session
-- USES     clock fleet session
-- FLAGS    allow-oom

local refused = fleet_guard(meta, partitions, layout, replid)
if refused then return refused end

local s = {id = session, key = {head = head}, head = {}, changed = {}}
local names = {'status', 'seq', 'first_seq', 'turn_seq', 'turns', 'first_turn', 'keep_from'}
for i, value in ipairs(redis.call('HMGET', head, unpack(names))) do
  s.head[names[i]] = value or nil
end
if get(s, 'status') == '' or get(s, 'status') == 'deleted' then return reply('NONE') end

local first = math.min(num(s, 'seq') - tonumber(events) + 1, num(s, 'turn_seq') + 1)
first = math.max(first, num(s, 'first_seq'))
redis.call('XTRIM', journal, 'MINID', int(first) .. '-0')
set(s, 'first_seq', first)
local turn = math.max(1, num(s, 'first_turn'), num(s, 'turns') - tonumber(records) + 1)
redis.call('XTRIM', turns, 'MINID', int(turn) .. '-0')
set(s, 'first_turn', turn)
save(s)
local item = math.min(tonumber(items_from), num(s, 'keep_from'))
if item > 0 then redis.call('XTRIM', transcript, 'MINID', int(item) .. '-0') end
return reply('OK', int(first))
