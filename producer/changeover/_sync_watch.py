# Written by tools/generate_sync.py from _watch.py: change that file instead.
"""Look at a fleet again and again, at a price that does not depend on how many sessions it has."""

from __future__ import annotations

import time
from typing import Final

from changeover._fleet_health import judged
from changeover._glance import Glance, Seen, glance_of
from changeover_shared._settings import Settings
from changeover_shared._store.keys import route_of
from changeover_shared._store.records import Quiet
from changeover_shared._store.sync_store import SyncStore

QUIET_EVERY_S: Final = 5.0
"""How old what changes slowly may be: timers, quarantine, pauses, and who has waited longest."""
ROUTES_EVERY_S: Final = 60.0
"""How long a queue without workers may go unnoticed."""


class SyncWatch:
    """Remembers between two looks what need not be asked for again."""

    def __init__(self, store: SyncStore, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._routes: tuple[str, ...] = ()
        self._routes_at = -ROUTES_EVERY_S
        self._quiet: Quiet | None = None
        self._since: dict[str, int] = {}
        self._quiet_at = -QUIET_EVERY_S

    def look(self) -> Glance:
        """The fleet now. Raises `StoreUnavailable`."""
        gauges = self._store.gauges
        servers = gauges.servers()
        now_ms = self._store.read_time()
        workers = judged(self._store.workers(), now_ms, self._settings)
        now = time.monotonic()
        if now - self._routes_at >= ROUTES_EVERY_S:
            self._routes = gauges.routes()
            self._routes_at = now
        served = {route_of(queue) for worker in workers for queue in worker.queues}
        routes = tuple(sorted({*self._routes, *served}))
        rush = gauges.rush(routes)
        quiet = self._quiet
        if quiet is None or now - self._quiet_at >= QUIET_EVERY_S:
            quiet = self._quiet = gauges.quiet(routes)
            self._since = gauges.waiting_since(routes, rush)
            self._quiet_at = now
        seen = Seen(rush, quiet, self._since)
        return glance_of(self._store.keys.prefix, seen, workers, servers, now_ms)
