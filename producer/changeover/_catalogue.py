"""List sessions by creation, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from changeover._answers import info_of
from changeover._pages import cursor_of
from changeover_shared._results import Page, SessionInfo
from changeover_shared._store.records import Snapshot
from changeover_shared._store.store import Store
from changeover_shared._words import SessionStatus

MAX_SCANNED: Final = 5_000
"""How many sessions one page looks at before it answers with what it has."""


@dataclass(frozen=True)
class Wanted:
    """Which sessions; None is any, and deleted ones are found only by their status."""

    agent: str | None
    queue: str | None
    status: SessionStatus | None

    def take(self, snapshot: Snapshot | None) -> SessionInfo | None:
        """The session if it is wanted; one that vanished since it was listed is not."""
        if snapshot is None:
            return None
        info = info_of(snapshot)
        fits = (
            self.agent in (None, info.agent)
            and self.queue in (None, info.queue)
            and (info.status == self.status if self.status else info.status != "deleted")
        )
        return info if fits else None


async def list_sessions(
    store: Store, wanted: Wanted, place: tuple[int, str] | None, limit: int
) -> Page[SessionInfo]:
    """Read up to `limit` sessions that were created before `place`."""
    found: list[SessionInfo] = []
    for _ in range(0, MAX_SCANNED, limit):
        listed = await store.catalogue(before=place, limit=limit + 1)
        snapshots = await store.snapshots([session_id for _, session_id in listed])
        for number, snapshot in enumerate(snapshots, 1):
            place = listed[number - 1]
            info = wanted.take(snapshot)
            if info is not None:
                found.append(info)
            if len(found) == limit:
                more = number < len(listed) or len(listed) > limit
                return Page(items=tuple(found), next=cursor_of(place) if more else None)
        if len(listed) <= limit:
            return Page(items=tuple(found))
    return Page(items=tuple(found), next=None if place is None else cursor_of(place))
