-- One session in memory: its head and open work as loaded, and what changed.
--
-- `set` keeps changes until `save` writes them with one HSET, so a script can compute and guard
-- before its first write. `work` holds `<n>` = class|due_ms|turn|group|submission|key|bytes and
-- `w:<wait>` = kind|deadline_ms|started|answer_n.

local LIMIT = 9007199254730992 -- 2^53 less room for what one script can add

local function split(text)
  local parts = {}
  for part in string.gmatch(text .. '|', '([^|]*)|') do parts[#parts + 1] = part end
  return parts
end

local function load(id, key)
  local s = {id = id, key = key, head = {}, changed = {}, inputs = {}, waits = {}}
  local flat = redis.call('HGETALL', key.head)
  for i = 1, #flat, 2 do s.head[flat[i]] = flat[i + 1] end
  s.exists = #flat > 0
  local work = redis.call('HGETALL', key.work)
  s.flat_work = work
  for i = 1, #work, 2 do
    local name, parts = work[i], split(work[i + 1])
    if string.sub(name, 1, 2) == 'w:' then
      s.waits[string.sub(name, 3)] = {
        kind = parts[1], deadline = tonumber(parts[2]), started = parts[3],
        answer = tonumber(parts[4]),
      }
    elseif name ~= '_' then
      s.inputs[tonumber(name)] = {
        n = tonumber(name), class = parts[1], due = tonumber(parts[2]), turn = parts[3],
        group = parts[4], sub = parts[5], key = parts[6], bytes = tonumber(parts[7]),
      }
    end
  end
  return s
end

local function get(s, field)
  return s.head[field] or ''
end

local function num(s, field)
  return tonumber(s.head[field]) or 0
end

-- A counter that is no whole number any more, or that doubles will soon not hold: nothing may be
-- written on top of it, and `delete` must not carry it into the partition's floors.
local function unfit(s)
  for _, field in ipairs({'rev', 'seq', 'n', 'turns', 'transcript_n', 'fence'}) do
    local value = get(s, field)
    if value ~= '' and (not string.match(value, '^%d+$') or tonumber(value) > LIMIT) then
      return redis.error_reply('LIMIT ' .. field .. ' of ' .. s.id)
    end
  end
end

local function set(s, field, value)
  if type(value) == 'number' then value = int(value) end
  if get(s, field) ~= value then
    s.head[field] = value
    s.changed[field] = value
  end
end

local function save(s)
  local sets, dels = {}, {}
  for field, value in pairs(s.changed) do
    if value == '' then
      dels[#dels + 1] = field
    else
      sets[#sets + 1] = field
      sets[#sets + 1] = value
    end
  end
  s.changed = {}
  if #sets > 0 then redis.call('HSET', s.key.head, unpack(sets)) end
  if #dels > 0 then redis.call('HDEL', s.key.head, unpack(dels)) end
end

local function put_input(s, input)
  s.inputs[input.n] = input
  redis.call('HSET', s.key.work, int(input.n), table.concat({
    input.class, int(input.due), input.turn, input.group, input.sub, input.key, int(input.bytes),
  }, '|'))
end

local function put_wait(s, name, wait)
  s.waits[name] = wait
  redis.call('HSET', s.key.work, 'w:' .. name, table.concat({
    wait.kind, int(wait.deadline), wait.started, int(wait.answer),
  }, '|'))
end

local function drop_wait(s, name)
  s.waits[name] = nil
  redis.call('HDEL', s.key.work, 'w:' .. name)
end

-- Positions in order; `keep` says which.
local function positions(s, keep)
  local found = {}
  for n, input in pairs(s.inputs) do
    if keep(input) then found[#found + 1] = n end
  end
  table.sort(found)
  return found
end

local function is_waiting(input)
  return input.class ~= 'answer' and input.turn == ''
end

local function is_due(input)
  return is_waiting(input) and input.due <= now
end
