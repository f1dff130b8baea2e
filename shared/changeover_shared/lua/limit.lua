-- Let a model be asked, or say when it may be: over the whole fleet no more requests and tokens a
-- minute, and no more requests at once, than its provider allows.
--
-- Who has to wait is given a time of its own, and keeps that place while it comes back in time. A
-- request has a name, so its repeat takes nothing twice; what a crash leaves ends by itself.
--
-- What is done, `act`: ask; extend, settle or refund what was let through; leave a place that is not
-- needed; hold, so that nobody asks for a span.
--
-- EACH     bucket    HASH  requests, tokens, line, slots, closed: times; took; hold: who closed it last
--          running   ZSET  request by when it ends unless it is extended
--          line      ZSET  place by its time
--          kept      ZSET  place by until when it is kept
-- ARGS     act       str
--          place     str   who asks, the same until it has been let through
--          request   str   this one request
--          tokens    int   ask, leave: estimated; settle, refund: how many more it were
--          span      int   ask, extend: until it ends by itself; settle: how long it took; hold; ms
--          longest   int   nobody is given a place further ahead than this, ms
-- LIST     caps      requests tokens concurrency   of each bucket; 0: any number
--          requests  name   extend: the requests that still run
-- REPLIES  GRANTED   it may be asked now
--          WAIT      span bucket   how long, and for which bucket, from 1
--          FAR       span bucket   the same; no place was taken
--          OK        to everything but ask
-- USES     clock
-- FLAGS    allow-oom

local MINUTE = 60000
local BURST = 12 -- after a quiet time a twelfth of what a minute allows may go at once
local SPREAD = 50 -- between two places, where no rate says
local TOOK = 2000 -- how long a request takes, before one has ended
local SOON = 250 -- between two looks for a free place, at least
local GRACE = 30000 -- how long after its time a place is kept
local HOUR = 3600000 -- nobody waits for longer, whatever was counted or told
local IDLE = 600000 -- how long after everything is over a bucket is remembered

tokens, span = tonumber(tokens), tonumber(span)
local buckets = {}

local function real(number)
  return string.format('%.3f', number)
end

-- What lies further ahead than anything can be was written under a clock that has been put back, or
-- is the count of a provider that has miscounted.
local function keep_near(b)
  b.requests = math.min(b.requests, now + MINUTE)
  b.tokens, b.closed = math.min(b.tokens, now + HOUR), math.min(b.closed, now + HOUR)
  b.line = math.min(b.line, now + HOUR + b.gap)
  b.slots = math.min(b.slots, now + HOUR + b.gap)
end

local function read(i)
  local b = {each = EACH[i]}
  local found = redis.call('HMGET', b.each.bucket, 'requests', 'tokens', 'line', 'slots', 'closed',
    'took')
  b.requests, b.tokens = tonumber(found[1] or 0), tonumber(found[2] or 0)
  b.line, b.slots = tonumber(found[3] or 0), tonumber(found[4] or 0)
  b.closed, b.took = tonumber(found[5] or 0), tonumber(found[6] or TOOK)
  local most, rate = tonumber(caps[i].requests), tonumber(caps[i].tokens)
  b.most = tonumber(caps[i].concurrency)
  b.step, b.each_token, b.burst = 0, 0, 1
  if most > 0 then
    -- A burst and what follows it are together never more than a minute allows.
    b.burst = math.max(1, math.floor(most / BURST))
    b.step = MINUTE / (most - b.burst + 1)
  end
  if rate > 0 then b.each_token = MINUTE / rate end
  b.gap = math.max(b.step, b.each_token * tokens)
  if b.gap <= 0 then b.gap = SPREAD end
  keep_near(b)
  return b
end

local function write(b)
  local each = b.each
  keep_near(b)
  redis.call('HSET', each.bucket, 'requests', real(b.requests), 'tokens', real(b.tokens), 'line',
    real(b.line), 'slots', real(b.slots), 'closed', real(b.closed), 'took', real(b.took))
  local last = math.max(now, b.requests, b.tokens, b.line, b.slots, b.closed)
  for _, key in ipairs({each.bucket, each.running, each.line, each.kept}) do
    redis.call('PEXPIREAT', key, int(last + IDLE))
  end
end

local function forget_ended(b)
  local each = b.each
  redis.call('ZREMRANGEBYSCORE', each.running, '-inf', int(now))
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', each.kept, '-inf', int(now))) do
    redis.call('ZREM', each.line, gone)
    redis.call('ZREM', each.kept, gone)
  end
  if redis.call('ZCARD', each.line) == 0 then b.line, b.slots = 0, 0 end
end

local function at_the_end(b, earliest)
  local at = math.max(earliest, b.line)
  b.line = at + b.gap
  return at, at
end

-- When the place may be let through by the rates, and its time in the line; nothing: now.
local function after_rates(b, mine, before)
  local opens = b.closed
  if b.step > 0 then opens = math.max(opens, b.requests - (b.burst - 1) * b.step) end
  if b.each_token > 0 then opens = math.max(opens, b.tokens - MINUTE / BURST) end
  opens = math.floor(opens)
  if mine and math.max(mine, now) >= b.closed then
    if mine > now then return math.max(mine, opens), mine end
    if opens > now then return opens + before * b.gap, mine end
    return
  end
  if not mine and before > 0 and b.step + b.each_token > 0 then
    opens = math.max(opens, now) + before * b.gap
  end
  -- Nobody's turn has come and none was taken for a while: those whose times come later lose
  -- nothing, and those who never come back would keep everybody else waiting.
  if before == 0 and opens + b.gap <= now then return end
  if math.max(opens, b.line) > now then return at_the_end(b, opens) end
end

-- The same for how many may run at once. Places whose time has come go before those without one.
local function after_others(b, mine, before)
  if b.most == 0 or redis.call('ZCARD', b.each.running) + before < b.most then return end
  local turn = b.took / b.most
  if mine then return now + math.max(SOON, turn * (before + 1)), mine end
  b.slots = math.max(b.slots, now) + math.max(SOON, turn)
  return b.slots, b.slots
end

local function wait_for(b)
  local mine = redis.call('ZSCORE', b.each.line, place)
  local to = int(now)
  if mine and tonumber(mine) <= now then to = '(' .. mine end
  local before = redis.call('ZCOUNT', b.each.line, '-inf', to)
  mine = mine and tonumber(mine)
  local at, score = after_rates(b, mine, before)
  if not at then at, score = after_others(b, mine, before) end
  if at then return math.ceil(at), math.ceil(score) end
end

local function granted()
  return reply('GRANTED')
end

local function wait_in_line(number, at, score)
  local b = buckets[number]
  redis.call('ZADD', b.each.line, int(score), place)
  for k = 1, number do
    -- Where it had its turn already it does not lose that by waiting here.
    local each = EACH[k]
    if redis.call('ZSCORE', each.line, place) then
      redis.call('ZADD', each.kept, int(at + GRACE), place)
    end
  end
  write(b)
end

local function change(b)
  local each = b.each
  if act == 'extend' then
    for _, one in ipairs(requests) do
      redis.call('ZADD', each.running, 'XX', 'GT', int(now + span), one.name)
    end
  elseif act == 'hold' then
    if redis.call('HGET', each.bucket, 'hold') == request then return end
    redis.call('HSET', each.bucket, 'hold', request)
    b.closed = math.max(b.closed, now + span)
    b.line = math.max(b.line, b.closed)
  elseif act == 'leave' then
    local mine = redis.call('ZSCORE', each.line, place)
    if not mine then return end
    redis.call('ZREM', each.line, place)
    redis.call('ZREM', each.kept, place)
    if tonumber(mine) > now then b.line = b.line - b.gap end
  else
    if redis.call('ZREM', each.running, request) == 0 then return end
    b.tokens = b.tokens + b.each_token * tokens
    if act == 'refund' then
      b.requests = b.requests - b.step
    else
      b.took = (4 * b.took + span) / 5
    end
  end
  write(b)
end

if act ~= 'ask' then
  for i = 1, #EACH do change(read(i)) end
  return reply('OK')
end

local each = EACH[1]
if redis.call('ZSCORE', each.running, request) then return granted() end
local full, at, score
for i = 1, #EACH do
  local b = read(i)
  buckets[i] = b
  forget_ended(b)
  at, score = wait_for(b)
  if at then
    full = i
    break
  end
end
if at and at - now > tonumber(longest) then return reply('FAR', int(at - now), int(full)) end
if at then
  wait_in_line(full, at, score)
  return reply('WAIT', int(math.max(1, at - now)), int(full))
end

for _, b in ipairs(buckets) do
  local each = b.each
  b.requests = math.max(b.requests, now) + b.step
  b.tokens = math.max(b.tokens, now) + b.each_token * tokens
  redis.call('ZREM', each.line, place)
  redis.call('ZREM', each.kept, place)
  redis.call('ZADD', each.running, int(now + span), request)
  write(b)
end
return granted()
