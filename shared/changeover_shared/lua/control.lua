-- Take a waiting submission back. What a turn holds is never taken from it.
--
-- KEYS     meta        HASH
--          head        HASH
--          work        HASH
--          inbox       STREAM
--          receipts    HASH
--          settled     ZSET
--          journal     STREAM
--          leases      ZSET
--          owners      HASH
--          ready       ZSET
--          solo        ZSET
--          timers      ZSET
--          vt          HASH
--          waiting     HASH
-- ARGS     partitions  int
--          layout      int
--          replid      str
--          not_after   int
--          session     str
--          route       str
--          id          str   of this request: its repeat is answered like the first
--          target      str   the submission to cancel
-- REPLIES  CANCELLED
--          RUNNING     turn status
--          ENDED       ending turn
--          UNKNOWN
--          ROUTE       route agent
-- USES     clock fleet session journal settle waiting place lease
-- FLAGS    allow-oom

local refused, epoch = fleet_guard(meta, partitions, layout, replid, not_after)
if refused then return refused end

local at = {leases = leases, owners = owners, ready = ready, solo = solo, timers = timers,
  vt = vt, waiting = waiting}
local s = load(session, {head = head, work = work, inbox = inbox, receipts = receipts,
  settled = settled, journal = journal})
read_owner(s, at)
if redis.call('HEXISTS', receipts, id) == 1 then return reply('CANCELLED') end
local receipt = redis.call('HGET', receipts, target)
if not receipt then return reply('UNKNOWN') end
local r = split(receipt)
if r[5] ~= '' then return reply('ENDED', r[5], r[6]) end
local input = s.inputs[tonumber(r[2])]
if not input then return reply('RUNNING', get(s, 'turn'), get(s, 'status')) end
if not is_waiting(input) then return reply('RUNNING', input.turn, get(s, 'status')) end
if get(s, 'route') ~= route then return reply('ROUTE', get(s, 'route'), get(s, 'agent')) end
refused = unfit(s)
if refused then return refused end

local seq = int(num(s, 'seq') + 1)
redis.call('HSET', receipts, id, table.concat({'cancel', '0', seq, int(now), 'completed', '', seq,
  int(now)}, '|'))
redis.call('ZADD', settled, int(now), id)
settle_apart(s, epoch, input, 'cancelled', id)
place(s, at)
return reply('CANCELLED')
