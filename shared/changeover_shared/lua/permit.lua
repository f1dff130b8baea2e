-- Let sessions run though their tenant, or their queue, may have only so many running at once.
--
-- A permit is taken before the grant and outlives the lease, so what is counted is never less than
-- what runs. A session that has several, a dead holder's among them, counts once.
--
-- EACH     permits   ZSET  session|nonce by the time its permit ends: of one tenant, or of one queue
-- ARGS     span      int   how long a permit lasts unless it is asked for again, ms
-- LIST     caps      kind cap   of each set: tenant or queue, and how many sessions
--          wanted    session nonce first second   numbers of its sets, from 1; 0: none
-- REPLIES  OK        {word value} per session: GRANTED until_ms, FULL kind
-- USES     clock
-- FLAGS    allow-oom

local sets = {}
for i, each in ipairs(EACH) do
  redis.call('ZREMRANGEBYSCORE', each.permits, '-inf', int(now))
  local set = {each = each, kind = caps[i].kind, cap = tonumber(caps[i].cap), count = 0,
    counted = {}}
  for _, member in ipairs(redis.call('ZRANGE', each.permits, 0, -1)) do
    local session = string.match(member, '^[^|]*')
    if not set.counted[session] then
      set.counted[session] = true
      set.count = set.count + 1
    end
  end
  sets[i] = set
end

local ends = int(now + span)

local function full_of(one)
  for _, number in ipairs({one.first, one.second}) do
    local set = sets[tonumber(number)]
    if set and not set.counted[one.session] and set.count >= set.cap then return set.kind end
  end
end

local function permit(one)
  for _, number in ipairs({one.first, one.second}) do
    local set = sets[tonumber(number)]
    if set then
      if not set.counted[one.session] then
        set.counted[one.session] = true
        set.count = set.count + 1
      end
      local each = set.each
      redis.call('ZADD', each.permits, 'GT', ends, one.session .. '|' .. one.nonce)
    end
  end
end

local answers = {}
for i, one in ipairs(wanted) do
  local full = full_of(one)
  if full then
    answers[i] = {'FULL', full}
  else
    permit(one)
    answers[i] = {'GRANTED', ends}
  end
end
for _, each in ipairs(EACH) do
  local last = redis.call('ZRANGE', each.permits, -1, -1, 'WITHSCORES')
  if last[2] then redis.call('PEXPIREAT', each.permits, int(tonumber(last[2]))) end
end
return reply('OK', answers)
