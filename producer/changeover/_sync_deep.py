# Written by tools/generate_sync.py from _deep.py: change that file instead.
"""Look at every key and session of a fleet, in pages. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
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
from changeover_shared._store.keys import Keys, Owner, PartitionKeys
from changeover_shared._store.soundness import Stored
from changeover_shared._store.sync_executor import SyncExecutor

PAGE: Final = 500
"""How many keys or entries are asked for at once."""
SESSIONS_AT_ONCE: Final = 16
LOOKS: Final = 4
"""How often a session that changes while it is read, or that seems wrong, is read again."""

Progress = Callable[[int, int], None]
"""Told how many sessions of how many have been looked at."""


def look_deep(
    executor: SyncExecutor, keys: Keys, sessions: int, told: Progress | None
) -> list[Finding]:
    """Say which keys have no owner, and where a session does not agree with itself."""
    tally = Tally(keys)
    sizes = _measures(executor, keys)
    for primary in executor.on_every_primary("PING"):
        for pattern in keys.patterns:
            for page in _keys(executor, primary, pattern):
                _page(executor, tally, page, sizes=sizes)
                if told is not None:
                    told(tally.sessions, max(sessions, tally.sessions))
    for at in keys.all:
        _entries(executor, tally, at)
    return [*tally.findings()]


def _keys(executor: SyncExecutor, primary: str, pattern: str) -> Generator[list[bytes]]:
    """Every key of a pattern that a primary has, in pages; one may come twice."""
    cursor = "0"
    while True:
        after, page = executor.on_primary(primary, "SCAN", cursor, "MATCH", pattern, "COUNT", PAGE)
        yield page
        cursor = after.decode()
        if cursor == "0":
            return


def _page(executor: SyncExecutor, tally: Tally, page: Sequence[bytes], *, sizes: bool) -> None:
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
    for owner, name in _headless(executor, tally.keys, others):
        tally.orphan(owner, name)
    for start in range(0, len(heads), SESSIONS_AT_ONCE):
        some = heads[start : start + SESSIONS_AT_ONCE]
        looks = [SessionLook(tally.keys.of(one), one, sizes=sizes) for one in some]
        _compare(executor, tally, looks)


def _headless(
    executor: SyncExecutor, keys: Keys, named: Sequence[tuple[Owner, str]]
) -> list[tuple[Owner, str]]:
    """Those whose key exists and whose session does not."""
    sessions = sorted({owner.session_id for owner, _ in named})
    heads = [("EXISTS", keys.of(one).session(one, "head")) for one in sessions]
    there = dict(zip(sessions, executor.commands(heads) if heads else [], strict=True))
    named = [(owner, key) for owner, key in named if not there[owner.session_id]]
    asked: list[tuple[str, ...]] = []
    for owner, key in named:
        head = keys.of(owner.session_id).session(owner.session_id, "head")
        asked += [("EXISTS", head), ("EXISTS", key), ("EXISTS", head)]
    values = executor.commands(asked) if asked else []
    return [one for i, one in enumerate(named) if values[3 * i : 3 * i + 3] == [0, 1, 0]]


def _compare(executor: SyncExecutor, tally: Tally, looks: Sequence[SessionLook]) -> None:
    """Compare what is stored of sessions; what changes or seems wrong is looked at again."""
    for last in (False,) * (LOOKS - 1) + (True,):
        now_ms = _now_ms(executor)
        again: list[SessionLook] = []
        for look, stored in zip(looks, _read(executor, looks), strict=True):
            if look.changing or (not last and wrong(stored, now_ms)):
                again.append(look)
            elif stored is not None:
                tally.session(look, stored, now_ms)
        if not again:
            return
        looks = again
    for _ in looks:
        tally.busy()


def _read(executor: SyncExecutor, looks: Sequence[SessionLook]) -> list[Stored | Unreadable | None]:
    routes = executor.commands([look.first() for look in looks])
    for look, values in zip(looks, routes, strict=True):
        look.named(values)
    asked = [look.commands() for look in looks]
    answers = iter(executor.commands([one for commands in asked for one in commands]))
    return [
        look.read_or_not(list(islice(answers, len(commands))))
        for look, commands in zip(looks, asked, strict=True)
    ]


def _now_ms(executor: SyncExecutor) -> int:
    return time_ms(executor.command("TIME"))


def _measures(executor: SyncExecutor, keys: Keys) -> bool:
    """Whether this user may ask how much memory a key takes."""
    try:
        executor.command("MEMORY", "USAGE", keys.config)
    except (ServerUnfit, ResponseError):
        return False
    return True


def _entries(executor: SyncExecutor, tally: Tally, at: PartitionKeys) -> None:
    """Look at what every index of a partition names."""
    known = decode.routes(executor.command("HKEYS", at.named("vt")))
    routes = sorted({*known, *(one for number, one in tally.routes if number == at.partition)})
    for index in indexes_of(at, routes):
        for members in _members(executor, index):
            for member, values in _asked(executor, members, index.asking_first):
                if not index.seems_wrong(values):
                    continue
                for again, more in _asked(executor, [member], index.asking):
                    reason = index.wrong(more)
                    if reason:
                        tally.entry(index, again, reason)


def _asked(
    executor: SyncExecutor, members: Sequence[str], asking: Asking
) -> list[tuple[str, list[Any]]]:
    """What each member's commands answered, from one pipeline."""
    asked = [asking(member) for member in members]
    commands = [command for some in asked for command in some]
    answers = iter(executor.commands(commands) if commands else [])
    return [
        (member, list(islice(answers, len(some))))
        for member, some in zip(members, asked, strict=True)
    ]


def _members(executor: SyncExecutor, index: Index) -> Generator[list[str]]:
    """What an index names, in pages; one may come twice."""
    cursor = "0"
    while True:
        after, flat = executor.command(index.scan, index.key, cursor, "COUNT", PAGE)
        yield [name.decode() for name, _ in decode.pairs(flat)]
        cursor = after.decode()
        if cursor == "0":
            return
