# Written by tools/generate_sync.py from gauges.py: change that file instead.
"""How much waits and runs, by counting only: no session is read.

What changes with every claim is asked for apart from the rest, so that whoever looks once a second
may ask for the rest less often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from changeover_shared._results import Pause
from changeover_shared._store import decode
from changeover_shared._store.records import Quiet, Rush
from changeover_shared._store.replication import facts_in
from changeover_shared._store.sync_fleet import SyncFleet


class SyncGauges:
    """Reads sizes of indexes. Raises `StoreUnavailable`."""

    def __init__(self, fleet: SyncFleet) -> None:
        self._fleet = fleet

    def routes(self) -> tuple[str, ...]:
        """Every route in which sessions have waited since somebody purged."""
        commands = [("HKEYS", at.named("vt")) for at in self._fleet.keys.all]
        found = self._fleet.executor.commands(commands)
        return tuple(sorted({route for fields in found for route in decode.routes(fields)}))

    def rush(self, routes: Sequence[str]) -> Rush:
        """What runs, and what waits in some routes. One command for each partition, and one for
        each route there."""
        every = self._fleet.keys.all
        sets = [(at, at.ready(route)) for route in routes for at in every]
        leases = [("ZCARD", at.named("leases")) for at in every]
        found = self._fleet.executor.commands([*leases, *(("ZCARD", key) for _, key in sets)])
        sizes = [int(size) for size in found[len(every) :]]
        ready: Counter[str] = Counter()
        for number, size in enumerate(sizes):
            ready[routes[number // len(every)]] += size
        filled = tuple(key for (_, key), size in zip(sets, sizes, strict=True) if size)
        return Rush(sum(map(int, found[: len(every)])), ready, filled)

    def quiet(self, routes: Sequence[str]) -> Quiet:
        """What stands still, and what is paused. Four commands for each partition, and one for
        each route there."""
        every = self._fleet.keys.all
        names = ("sessions", "timers", "quarantine")
        counted = [("ZCARD", at.named(name)) for name in names for at in every]
        metas = [("HGETALL", at.named("meta")) for at in every]
        solos = [("ZCARD", at.solo(route)) for route in routes for at in every]
        found = self._fleet.executor.commands([*counted, *metas, *solos])
        step = len(every)
        sessions, timers, quarantined = (
            sum(map(int, found[step * i : step * (i + 1)])) for i in range(len(names))
        )
        pauses: list[dict[str, Pause]] = [decode.paused(one) for one in found[3 * step : 4 * step]]
        suspects: Counter[str] = Counter()
        for number, size in enumerate(found[4 * step :]):
            suspects[routes[number // step]] += int(size)
        return Quiet(sessions, timers, quarantined, suspects, tuple(pauses))

    def waiting_since(self, routes: Sequence[str], rush: Rush) -> dict[str, int]:
        """Route -> since when the longest of those waits that are the next in their partitions.

        Two commands for each ready set that holds something.
        """
        executor, filled = self._fleet.executor, {*rush.filled}
        sets = [
            (route, at)
            for route in routes
            for at in self._fleet.keys.all
            if at.ready(route) in filled
        ]
        if not sets:
            return {}
        firsts = executor.commands([("ZRANGE", at.ready(route), 0, 0) for route, at in sets])
        named = [
            (route, at.session(first[0].decode(), "head"))
            for (route, at), first in zip(sets, firsts, strict=True)
            if first
        ]
        times: list[Any] = []
        if named:
            times = executor.commands([("HGET", head, "at_ms") for _, head in named])
        since: dict[str, int] = {}
        for (route, _), at_ms in zip(named, times, strict=True):
            if at_ms is not None:
                since[route] = min(int(at_ms), since.get(route, int(at_ms)))
        return since

    def servers(self) -> dict[str, dict[str, str] | Exception]:
        """What each primary says of itself by INFO, or why it said nothing."""
        asked = ("INFO", "server", "memory", "stats", "clients", "replication")
        found = self._fleet.executor.on_each_primary(*asked)
        return {
            name: said if isinstance(said, Exception) else facts_in(said)
            for name, said in found.items()
        }
