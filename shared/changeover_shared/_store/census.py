"""How a fleet stands, counted by one worker for all: what waits in each queue, and since when.

Whoever leads the sweep counts and writes it down; every worker reads that, so that any of them can
be asked. What waits is counted anew each time. Where sessions stand is one small hash for each of
them, so that is walked in portions, and is as old as a walk takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from changeover_shared._items import Wire
from changeover_shared._store import decode
from changeover_shared._store.fleet import Fleet
from changeover_shared._store.keys import PartitionKeys, queue_of

HEADS: Final = 2000
"""Of so many waiting sessions it is read since when they wait."""
FIRST: Final = 20
"""The most of them in one ready set: those that are granted next."""
KEPT_MS: Final = 60_000
"""How long what was counted is kept."""


class Waiting(Wire):
    """What waits in a queue."""

    count: int = 0
    since_ms: int = 0
    """When the one that waits longest became ready, of those that are granted next; 0 if none
    waits."""


class FleetCount(Wire):
    """How a fleet stands."""

    at_ms: int
    waiting: Mapping[str, Waiting] = {}
    """By queue."""
    quarantined: int = 0
    sessions: Mapping[str, Mapping[str, int]] = {}
    """Queue -> status -> how many, when they were walked."""
    walked_ms: int = 0
    """When that walk began; 0 before there was one."""
    memory: Mapping[str, float] = {}
    """Server -> which share of its memory is in use; none for one without a limit."""


class Census:
    """Reads what is counted, and keeps the result where all workers find it."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def waiting(self) -> tuple[dict[str, Waiting], int]:
        """What waits, by queue, and how many sessions are quarantined. Raises `StoreUnavailable`
        and `ServerUnfit`."""
        every, commands = self._fleet.keys.all, self._fleet.executor.commands
        found = await commands([("HKEYS", at.named("vt")) for at in every])
        routes = [decode.routes(fields) for fields in found]
        sets = [
            (at, route, key)
            for at, some in zip(every, routes, strict=True)
            for route in some
            for key in (at.ready(route), at.solo(route))
        ]
        counts = await commands(
            [
                *(("ZCARD", key) for _, _, key in sets),
                *(("ZCARD", at.named("quarantine")) for at in every),
            ]
        )
        sizes = [int(count) for count in counts[: len(sets)]]
        since = await self._since([one for one, size in zip(sets, sizes, strict=True) if size])
        waiting: dict[str, Waiting] = {}
        for (_, route, key), size in zip(sets, sizes, strict=True):
            queue = queue_of(route)
            before = waiting.get(queue, Waiting())
            times = [ms for ms in (before.since_ms, since.get(key, 0)) if ms]
            waiting[queue] = Waiting(count=before.count + size, since_ms=min(times, default=0))
        return waiting, sum(map(int, counts[len(sets) :]))

    async def write(self, count: FleetCount) -> None:
        """Keep it for a minute. Raises `StoreUnavailable` and `ServerUnfit`."""
        key = self._fleet.keys.census
        await self._fleet.executor.command("SET", key, count.model_dump_json(), "PX", KEPT_MS)

    async def read(self) -> FleetCount | None:
        """What was counted last; None where nobody counts, or in another way than here. Raises
        `StoreUnavailable` and `ServerUnfit`."""
        found = await self._fleet.executor.command("GET", self._fleet.keys.census)
        try:
            return None if found is None else FleetCount.model_validate_json(found)
        except ValidationError:
            return None

    async def _since(self, sets: list[tuple[PartitionKeys, str, str]]) -> dict[str, int]:
        """Ready set -> when the longest waiting of its first sessions became ready."""
        if not sets:
            return {}
        commands = self._fleet.executor.commands
        first = max(1, min(FIRST, HEADS // len(sets)))
        named = await commands([("ZRANGE", key, 0, first - 1) for _, _, key in sets])
        members = [
            (key, at.session(member.decode(), "head"))
            for (at, _, key), some in zip(sets, named, strict=True)
            for member in some
        ]
        times = await commands([("HGET", head, "at_ms") for _, head in members])
        since: dict[str, int] = {}
        for (key, _), at_ms in zip(members, times, strict=True):
            if at_ms:
                since[key] = min(int(at_ms), since.get(key, int(at_ms)))
        return since
