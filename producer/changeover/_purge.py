"""Retention, as an operator starts it: old sessions, aged receipts, tombstones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from changeover_shared._results import Purged
from changeover_shared._store.store import Store

LISTED: Final = 500


async def purge(store: Store, spans: Mapping[str, int | None], *, dry_run: bool) -> Purged:
    """Delete sessions whose status has a span, in milliseconds, that their newest event is older
    than; then forget what the deduplication window has passed by."""
    sessions: list[str] = []
    tombstones = receipts = 0
    place: tuple[int, str] | None = None
    now_ms = await store.read_time()
    while True:
        listed = await store.catalogue(before=place, limit=LISTED)
        names = [session_id for _, session_id in listed]
        # Those that cannot be read here any more go by age like the others.
        found = await store.snapshots(names, strict=False)
        for session_id, snapshot in zip(names, found, strict=True):
            span = spans.get(snapshot.head.status) if snapshot is not None else None
            if snapshot is None or span is None or snapshot.head.at_ms + span > now_ms:
                continue
            # What waits for its time was accepted, and is to be run.
            if snapshot.work.waiting:
                continue
            at_seq = snapshot.head.seq
            if dry_run or await store.upkeep.delete(session_id, reason="purged", at_seq=at_seq):
                sessions.append(session_id)
        if not dry_run:
            for at in store.keys.all:
                mine = [one for one in names if store.keys.of(one) == at]
                _, count = await store.upkeep.purge(at.partition, mine)
                receipts += count
        if len(listed) < LISTED:
            break
        place = listed[-1]
    if not dry_run:
        for at in store.keys.all:
            seen: tuple[str, ...] = ()
            # Oldest first: once the same ones are left, the window has passed by no others.
            while (dead := await store.upkeep.graves(at.partition, limit=LISTED)) != seen:
                count, _ = await store.upkeep.purge(at.partition, dead)
                tombstones += count
                seen = dead
    return Purged(sessions=tuple(sessions), tombstones=tombstones, receipts=receipts)
