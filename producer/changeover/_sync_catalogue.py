# Written by tools/generate_sync.py from _catalogue.py: change that file instead.
"""List sessions by creation, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, get_args

from changeover._answers import info_of
from changeover._pages import cursor_of
from changeover_shared._errors import Invalid
from changeover_shared._identifiers import name
from changeover_shared._results import Page, SessionInfo
from changeover_shared._store.records import Snapshot
from changeover_shared._store.sync_store import SyncStore
from changeover_shared._words import SessionStatus

MAX_SCANNED: Final = 5_000
"""How many sessions one page looks at before it answers with what it has."""

STATUSES: Final[tuple[SessionStatus, ...]] = get_args(SessionStatus)


@dataclass(frozen=True)
class Wanted:
    """Which sessions; None is any, and deleted ones are found only by their status."""

    agent: str | None
    queue: str | None
    status: SessionStatus | None

    def __post_init__(self) -> None:
        """Raises `Invalid`: what no session can have is a mistake, not an empty page."""
        if self.agent is not None:
            name(self.agent, field="agent")
        if self.queue is not None:
            name(self.queue, field="queue")
        if self.status is not None and self.status not in STATUSES:
            reason = f"{self.status!r:.80} is none of {', '.join(STATUSES)}"
            raise Invalid(field="status", reason=reason)

    def take(self, snapshot: Snapshot | None, now_ms: int) -> SessionInfo | None:
        """The session if it is wanted; one that vanished since it was listed is not."""
        if snapshot is None:
            return None
        info = info_of(snapshot, now_ms)
        fits = (
            self.agent in (None, info.agent)
            and self.queue in (None, info.queue)
            and (info.status == self.status if self.status else info.status != "deleted")
        )
        return info if fits else None


def list_sessions(
    store: SyncStore, wanted: Wanted, place: tuple[int, str] | None, limit: int
) -> Page[SessionInfo]:
    """Read up to `limit` sessions that were created before `place`."""
    found: list[SessionInfo] = []
    for _ in range(0, MAX_SCANNED, limit):
        listed = store.catalogue(before=place, limit=limit + 1)
        names = [session_id for _, session_id in listed]
        # One that cannot be read here must not hide the others.
        snapshots = store.snapshots(names, strict=False)
        now_ms = store.now_ms()
        for number, snapshot in enumerate(snapshots, 1):
            place = listed[number - 1]
            info = wanted.take(snapshot, now_ms)
            if info is not None:
                found.append(info)
            if len(found) == limit:
                more = number < len(listed) or len(listed) > limit
                return Page(items=tuple(found), next=cursor_of(place) if more else None)
        if len(listed) <= limit:
            return Page(items=tuple(found))
    return Page(items=tuple(found), next=None if place is None else cursor_of(place))
