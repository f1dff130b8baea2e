-- Whose inboxes hold as many submissions as may wait, as the leader of the sweep has said it of the
-- whole fleet: `<until>|<whose>=<depth>/<limit>|...|`, where `*` is everybody. Nil when nobody's do.

local function still_full(meta)
  local said = redis.call('HGET', meta, 'full')
  if said and tonumber(string.match(said, '^%d+')) > now then return said end
end

local function full_of(said, whose)
  local _, last = string.find(said, '|' .. whose .. '=', 1, true)
  if last then return string.match(said, '^(%d+)/(%d+)|', last + 1) end
end
