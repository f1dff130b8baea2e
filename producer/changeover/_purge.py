"""Retention, as an operator starts it: old sessions, long ones, aged receipts, tombstones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from changeover_shared._errors import PayloadError
from changeover_shared._results import Purged
from changeover_shared._settings import Settings
from changeover_shared._store.records import EVERYBODY, Snapshot
from changeover_shared._store.retention import holds_too_much, oldest_kept
from changeover_shared._store.store import Store
from changeover_shared._units import Duration, unless_never

LISTED: Final = 500
SILENT_MS: Final = 86_400_000
"""A worker that has said nothing for a day leaves the registry with a purge."""

Spans = Mapping[str, timedelta | None]
"""Status -> how long a session of it stays; None: for ever."""


def spans(settings: Settings, closed_for: Duration | None, idle_for: Duration | None) -> Spans:
    """What was asked for, else what the settings say. Raises `Invalid`."""
    return {
        "closed": settings.closed_ttl
        if closed_for is None
        else unless_never(closed_for, field="closed_for"),
        "idle": settings.idle_ttl if idle_for is None else unless_never(idle_for, field="idle_for"),
    }


async def purge(store: Store, ages: Spans, *, dry_run: bool) -> Purged:
    """Delete sessions whose newest event is older than the span of their status; trim the others;
    then forget what the deduplication window has passed by, and whom nobody knows any more."""
    run = _Purge(store, ages, dry_run=dry_run)
    await run.all_sessions()
    if not dry_run:
        await run.tombstones()
        await run.hints()
        await run.sums()
    return run.purged


class _Purge:
    def __init__(self, store: Store, ages: Spans, *, dry_run: bool) -> None:
        self.purged = Purged()
        self._store = store
        self._ages = ages
        self._dry_run = dry_run
        self._waiting: dict[int, Counter[str]] = {at.partition: Counter() for at in store.keys.all}
        self._routes: dict[int, set[str]] = {at.partition: set() for at in store.keys.all}

    async def all_sessions(self) -> None:
        """Go through the catalogue, page by page."""
        place: tuple[int, str] | None = None
        now_ms = await self._store.read_time()
        while True:
            listed = await self._store.catalogue(before=place, limit=LISTED)
            names = [session_id for _, session_id in listed]
            # Those that cannot be read here any more go by age like the others.
            snapshots = await self._store.snapshots(names, strict=False)
            for session_id, snapshot in zip(names, snapshots, strict=True):
                if snapshot is not None:
                    await self._session(session_id, snapshot, now_ms)
            if not self._dry_run:
                await self._receipts(names)
            if len(listed) < LISTED:
                return
            place = listed[-1]

    async def tombstones(self) -> None:
        """Fold the tombstones that are old enough into the floors of their partitions."""
        for at in self._store.keys.all:
            seen: tuple[str, ...] = ()
            # Oldest first: once the same ones are left, the window has passed by no others.
            while (dead := await self._store.upkeep.graves(at.partition, limit=LISTED)) != seen:
                count, _ = await self._store.upkeep.purge(at.partition, dead)
                self._count(tombstones=count)
                seen = dead

    async def hints(self) -> None:
        """Forget the order of routes that no session has, and workers that are long gone."""
        for partition, routes in self._routes.items():
            await self._store.upkeep.forget_routes(partition, routes)
        await self._store.upkeep.forget_workers(silent_ms=SILENT_MS)

    async def sums(self) -> None:
        """Count anew what waits where the partition says otherwise than its sessions; one in which
        something happened meanwhile may seem so, and loses nothing by it."""
        for partition, waiting in self._waiting.items():
            if await self._store.upkeep.sums(partition) != waiting:
                await self._store.upkeep.recount(partition)

    async def _session(self, session_id: str, snapshot: Snapshot, now_ms: int) -> None:
        head = snapshot.head
        if self._is_old(snapshot, now_ms):
            delete = self._store.upkeep.delete
            if self._dry_run or await delete(session_id, reason="purged", at_seq=head.seq):
                self._count(session_id)
                return
        partition = self._store.keys.of(session_id).partition
        self._routes[partition].add(head.route)
        if waits := sum(one.kind != "answer" and not one.turn for one in snapshot.work.waiting):
            whose = {EVERYBODY, head.tenant or EVERYBODY}
            self._waiting[partition].update(dict.fromkeys(whose, waits))
        if not self._dry_run and holds_too_much(head, self._store.settings):
            oldest = oldest_kept(head, self._store.settings)
            items_from = await self._first_item(session_id, oldest) if oldest > 1 else 0
            await self._store.upkeep.trim(session_id, items_from=items_from)
            self._count(trimmed=1)

    def _is_old(self, snapshot: Snapshot, now_ms: int) -> bool:
        age = self._ages.get(snapshot.head.status)
        # What waits for its time was accepted, and is to be run.
        if age is None or snapshot.work.waiting:
            return False
        return snapshot.head.at_ms + age / timedelta(milliseconds=1) <= now_ms

    async def _first_item(self, session_id: str, turn: int) -> int:
        """The first transcript item of a turn; 0 when that cannot be told, and so nothing goes."""
        try:
            (record,) = await self._store.turns_of([(session_id, f"t_{turn}")])
        except PayloadError:
            return 0
        return 0 if record is None else record.first_item

    async def _receipts(self, names: list[str]) -> None:
        for at in self._store.keys.all:
            mine = [one for one in names if self._store.keys.of(one) == at]
            _, count = await self._store.upkeep.purge(at.partition, mine)
            self._count(receipts=count)

    def _count(
        self, session_id: str = "", *, tombstones: int = 0, receipts: int = 0, trimmed: int = 0
    ) -> None:
        was = self.purged
        self.purged = Purged(
            sessions=(*was.sessions, session_id) if session_id else was.sessions,
            tombstones=was.tombstones + tombstones,
            receipts=was.receipts + receipts,
            trimmed=was.trimmed + trimmed,
        )
