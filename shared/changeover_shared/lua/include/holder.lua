-- The right to write: the caller's lease string is the one in `owners`, and it has not run out.
--
-- REPLIES  DELETED           the session was deleted
--          GONE              nobody holds it
--          LOST     fence    another grant holds it
--          EXPIRED           the caller's own lease ran out before this came

local function lease_guard(s, token)
  if get(s, 'status') == 'deleted' then return reply('DELETED') end
  if not s.owner then return reply('GONE') end
  if s.owner ~= token then return reply('LOST', fence_of(s.owner)) end
  if s.expires <= now then return reply('EXPIRED') end
end
