-- Add events under the lease, outside a commit: streamed text, mostly.
--
-- KEYS     meta        HASH
--          head        HASH
--          work        HASH
--          journal     STREAM
--          leases      ZSET
--          owners      HASH
-- ARGS     partitions  int
--          layout      int
--          replid      str
--          session     str
--          lease       str
--          batch       int   1, 2, 3 ... within one grant
--          cap         int   above so many events in the turn, deltas are left out
-- LIST     events      kind sub turn step body
-- SEALED   events.body  event
-- REPLIES  OK          first_seq ctl_epoch n
--          DROPPED     first_seq ctl_epoch n   deltas were left out
--          ALREADY     first_seq ctl_epoch n word   this batch is written, with that word
--          GAP         batch                   a batch is missing, nothing was written
-- USES     clock fleet session journal lease holder

local refused, epoch = fleet_guard(meta, partitions, layout, replid)
if refused then return refused end

local s = load(session, {head = head, work = work, journal = journal})
read_owner(s, {leases = leases, owners = owners})
refused = lease_guard(s, lease) or unfit(s)
if refused then return refused end
batch = tonumber(batch)
if batch <= num(s, 'batch') then
  return reply('ALREADY', get(s, 'batch_seq'), int(num(s, 'ctl_epoch')), int(num(s, 'n')),
    get(s, 'batch_word'))
end
if batch ~= num(s, 'batch') + 1 then return reply('GAP', int(num(s, 'batch'))) end

local first = num(s, 'seq') + 1
local full = num(s, 'seq') - num(s, 'turn_seq') >= tonumber(cap)
local word = 'OK'
for _, e in ipairs(events) do
  if full and e.kind == 'delta' then
    word = 'DROPPED'
  else
    event(s, epoch, e.kind, e.sub, e.turn, e.step, e.body)
  end
end
set(s, 'batch', batch)
set(s, 'batch_seq', first)
set(s, 'batch_word', word)
save(s)
return reply(word, int(first), int(num(s, 'ctl_epoch')), int(num(s, 'n')))
