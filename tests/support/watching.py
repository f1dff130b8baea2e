"""Scripts that check themselves: each key that one touches must be among the KEYS it was given.

A Cluster refuses a foreign key only where another node serves it, and a single server never does.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

from changeover_shared._store.calls import Call
from changeover_shared._store.executor import Executor
from changeover_shared._store.scripts import Script

ONE_KEY = (
    "GET", "SET", "PERSIST", "PEXPIRE", "PEXPIREAT",
    "HGET", "HSET", "HSETNX", "HMGET", "HGETALL", "HEXISTS", "HDEL", "HINCRBY", "HRANDFIELD",
    "ZADD", "ZREM", "ZSCORE", "ZCARD", "ZCOUNT", "ZRANGE", "ZRANGEBYSCORE", "ZREMRANGEBYSCORE",
    "XADD", "XDEL", "XLEN", "XRANGE", "XREVRANGE", "XTRIM",
)  # fmt: skip
"""Commands whose first argument is their one key."""
KEYS_ALONE = ("UNLINK", "EXISTS")
"""Commands that have nothing but keys."""
WATCH = """
local redis = (function(server, declared)
  local one, alone = {{{one}}}, {{{alone}}}
  for _, key in ipairs(KEYS) do declared[key] = true end
  return {{error_reply = server.error_reply, call = function(command, ...)
    local given = {{...}}
    local last = alone[command] and #given or one[command] and 1 or command == 'TIME' and 0
    if not last then error('WATCH knows no ' .. command) end
    for i = 1, last do
      if not declared[given[i]] then error('WATCH ' .. command .. ' ' .. given[i]) end
    end
    return server.call(command, ...)
  end}}
end)(redis, {{}})
""".format(
    one=", ".join(f"{name} = true" for name in ONE_KEY),
    alone=", ".join(f"{name} = true" for name in KEYS_ALONE),
)


def watched(script: Script) -> Script:
    """The same script, which fails where it touches a key that it was not given."""
    flags, _, _ = script.text.partition("\n") if script.text.startswith("#!") else ("", "", "")
    plain = WATCH + script.plain
    text = f"{flags}\n{plain}" if flags else plain
    return dataclasses.replace(
        script, text=text, plain=plain, sha=sha_of(text), plain_sha=sha_of(plain)
    )


class WatchingExecutor(Executor):
    """Runs every script watched, and remembers which have run."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.ran: set[str] = set()
        self._known: dict[str, Script] = {}

    async def run(self, call: Call) -> list[Any]:
        return await super().run(self._watched(call))

    async def run_all(self, calls: Sequence[Call]) -> list[list[Any] | Exception]:
        return await super().run_all([self._watched(call) for call in calls])

    def _watched(self, call: Call) -> Call:
        self.ran.add(call.script.name)
        sha = call.script.sha
        if sha not in self._known:
            self._known[sha] = watched(call.script)
        return dataclasses.replace(call, script=self._known[sha])


def sha_of(text: str) -> str:
    """What EVALSHA calls a script by."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
