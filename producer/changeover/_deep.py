"""Look at every key and session of a fleet, in pages. Reads only."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import islice
from typing import Any, Final

from redis.exceptions import ResponseError

from changeover._index_look import Asking, Index, indexes_of
from changeover._session_look import SessionLook, Unreadable
from changeover._tally import Tally, wrong
from changeover_shared._errors import ServerUnfit
from changeover_shared._server.check import Finding
from changeover_shared._store import decode
from changeover_shared._store.clock import time_ms
from changeover_shared._store.executor import Executor
from changeover_shared._store.keys import Keys, Owner, PartitionKeys
from changeover_shared._store.soundness import Stored

PAGE: Final = 500
"""How many keys or entries are asked for at once."""
SESSIONS_AT_ONCE: Final = 16
LOOKS: Final = 4
"""How often a session that changes while it is read, or that seems wrong, is read again."""

Progress = Callable[[int, int], None]
"""Told how many sessions of how many have been looked at."""


async def look_deep(
    executor: Executor, keys: Keys, sessions: int, told: Progress | None
) -> list[Finding]:
    """Say which keys have no owner, and where a session does not agree with itself."""
    tally = Tally(keys)
    sizes = await _measures(executor, keys)
    for primary in await executor.on_every_primary("PING"):
        for pattern in keys.patterns:
            async for page in _keys(executor, primary, pattern):
                await _page(executor, tally, page, sizes=sizes)
                if told is not None:
                    told(tally.sessions, max(sessions, tally.sessions))
    for at in keys.all:
        await _entries(executor, tally, at)
    return [*tally.findings()]


async def _keys(executor: Executor, primary: str, pattern: str) -> AsyncGenerator[list[bytes]]:
    """Every key of a pattern that a primary has, in pages; one may come twice."""
    cursor = "0"
    while True:
        after, page = await executor.on_primary(
            primary, "SCAN", cursor, "MATCH", pattern, "COUNT", PAGE
        )
        yield page
        cursor = after.decode()
        if cursor == "0":
            return


async def _page(executor: Executor, tally: Tally, page: Sequence[bytes], *, sizes: bool) -> None:
    heads: list[str] = []
    others: list[tuple[Owner, str]] = []
    for key in page:
        owner = tally.key(key)
        if owner is not None and owner.kind == "session":
            if owner.name == "head":
                heads.append(owner.session_id)
            else:
                others.append((owner, key.decode()))
    # One key at a time may go: what is asked for twice and missing twice had no head before.
    for owner, name in await _headless(executor, tally.keys, others):
        tally.orphan(owner, name)
    for start in range(0, len(heads), SESSIONS_AT_ONCE):
        some = heads[start : start + SESSIONS_AT_ONCE]
        looks = [SessionLook(tally.keys.of(one), one, sizes=sizes) for one in some]
        await _compare(executor, tally, looks)


async def _headless(
    executor: Executor, keys: Keys, named: Sequence[tuple[Owner, str]]
) -> list[tuple[Owner, str]]:
    """Those whose key exists and whose session does not."""
    sessions = sorted({owner.session_id for owner, _ in named})
    heads = [("EXISTS", keys.of(one).session(one, "head")) for one in sessions]
    there = dict(zip(sessions, await executor.commands(heads) if heads else [], strict=True))
    named = [(owner, key) for owner, key in named if not there[owner.session_id]]
    asked: list[tuple[str, ...]] = []
    for owner, key in named:
        head = keys.of(owner.session_id).session(owner.session_id, "head")
        asked += [("EXISTS", head), ("EXISTS", key), ("EXISTS", head)]
    values = await executor.commands(asked) if asked else []
    return [one for i, one in enumerate(named) if values[3 * i : 3 * i + 3] == [0, 1, 0]]


async def _compare(executor: Executor, tally: Tally, looks: Sequence[SessionLook]) -> None:
    """Compare what is stored of sessions; what changes or seems wrong is looked at again."""
    for last in (False,) * (LOOKS - 1) + (True,):
        now_ms = await _now_ms(executor)
        again: list[SessionLook] = []
        for look, stored in zip(looks, await _read(executor, looks), strict=True):
            if look.changing or (not last and wrong(stored, now_ms)):
                again.append(look)
            elif stored is not None:
                tally.session(look, stored, now_ms)
        if not again:
            return
        looks = again
    for _ in looks:
        tally.busy()


async def _read(
    executor: Executor, looks: Sequence[SessionLook]
) -> list[Stored | Unreadable | None]:
    routes = await executor.commands([look.first() for look in looks])
    for look, values in zip(looks, routes, strict=True):
        look.named(values)
    asked = [look.commands() for look in looks]
    answers = iter(await executor.commands([one for commands in asked for one in commands]))
    return [
        look.read_or_not(list(islice(answers, len(commands))))
        for look, commands in zip(looks, asked, strict=True)
    ]


async def _now_ms(executor: Executor) -> int:
    return time_ms(await executor.command("TIME"))


async def _measures(executor: Executor, keys: Keys) -> bool:
    """Whether this user may ask how much memory a key takes."""
    try:
        await executor.command("MEMORY", "USAGE", keys.config)
    except (ServerUnfit, ResponseError):
        return False
    return True


async def _entries(executor: Executor, tally: Tally, at: PartitionKeys) -> None:
    """Look at what every index of a partition names."""
    known = decode.routes(await executor.command("HKEYS", at.named("vt")))
    routes = sorted({*known, *(one for number, one in tally.routes if number == at.partition)})
    for index in indexes_of(at, routes):
        async for members in _members(executor, index):
            for member, values in await _asked(executor, members, index.asking_first):
                if not index.seems_wrong(values):
                    continue
                for again, more in await _asked(executor, [member], index.asking):
                    reason = index.wrong(more)
                    if reason:
                        tally.entry(index, again, reason)


async def _asked(
    executor: Executor, members: Sequence[str], asking: Asking
) -> list[tuple[str, list[Any]]]:
    """What each member's commands answered, from one pipeline."""
    asked = [asking(member) for member in members]
    commands = [command for some in asked for command in some]
    answers = iter(await executor.commands(commands) if commands else [])
    return [
        (member, list(islice(answers, len(some))))
        for member, some in zip(members, asked, strict=True)
    ]


async def _members(executor: Executor, index: Index) -> AsyncGenerator[list[str]]:
    """What an index names, in pages; one may come twice."""
    cursor = "0"
    while True:
        after, flat = await executor.command(index.scan, index.key, cursor, "COUNT", PAGE)
        yield [name.decode() for name, _ in decode.pairs(flat)]
        cursor = after.decode()
        if cursor == "0":
            return
