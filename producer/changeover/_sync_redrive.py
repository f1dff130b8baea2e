# Written by tools/generate_sync.py from _redrive.py: change that file instead.
"""List quarantined sessions, and let them go on, each for itself."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Final

from changeover._answers import shown_status
from changeover._pages import cursor_of
from changeover._quarantine import given_up, is_quarantined, quarantined_of
from changeover._sync_catalogue import MAX_SCANNED
from changeover_shared._errors import ChangeoverError
from changeover_shared._results import Page, Quarantined, Redriven
from changeover_shared._store.records import Drop
from changeover_shared._store.sync_store import SyncStore

LISTED: Final = 100
"""How many sessions are read at once when all are let go on."""


def list_quarantined(
    store: SyncStore, queue: str | None, place: tuple[int, str] | None, limit: int
) -> Page[Quarantined]:
    """Read up to `limit` sessions that were quarantined before `place`, newest first."""
    found: list[Quarantined] = []
    for _ in range(0, MAX_SCANNED, limit):
        listed = store.catalogue(before=place, limit=limit + 1, index="quarantine")
        names = [session_id for _, session_id in listed]
        snapshots = store.snapshots(names, strict=False)
        for number, snapshot in enumerate(snapshots, 1):
            place = listed[number - 1]
            # One that was let go on since it was listed is in no quarantine any more.
            if snapshot is not None and is_quarantined(snapshot):
                one = quarantined_of(snapshot, place[0])
                if queue in (None, one.queue):
                    found.append(one)
            if len(found) == limit:
                more = number < len(listed) or len(listed) > limit
                return Page(items=tuple(found), next=cursor_of(place) if more else None)
        if len(listed) <= limit:
            return Page(items=tuple(found))
    return Page(items=tuple(found), next=None if place is None else cursor_of(place))


@dataclass(frozen=True, slots=True)
class Asked:
    """How sessions are to go on."""

    drop: Drop
    by: str
    dry_run: bool = False
    """Only say what would be dropped."""


def redrive_named(store: SyncStore, sessions: Iterable[str], asked: Asked) -> Generator[Redriven]:
    """Let each of the named sessions go on."""
    for session_id in sessions:
        yield redrive_one(store, session_id, asked)


def redrive_all(store: SyncStore, queue: str | None, asked: Asked) -> Generator[Redriven]:
    """Let all quarantined sessions go on, or those of a queue, newest first: those that are there
    when it comes to them, each once."""
    place: tuple[int, str] | None = None
    while True:
        listed = store.catalogue(before=place, limit=LISTED, index="quarantine")
        names = [session_id for _, session_id in listed]
        for snapshot in store.snapshots(names, strict=False):
            if snapshot is None or not is_quarantined(snapshot):
                continue
            if queue in (None, quarantined_of(snapshot).queue):
                yield redrive_one(store, snapshot.session_id, asked)
        if len(listed) < LISTED:
            return
        place = listed[-1]


def redrive_one(store: SyncStore, session_id: str, asked: Asked) -> Redriven:
    """Let one session go on. Never raises: an answer that did not come is `failed`."""
    try:
        return _redrive(store, session_id, asked)
    except ChangeoverError as error:
        return Redriven(session_id=session_id, answer="failed", error=str(error))


def _redrive(store: SyncStore, session_id: str, asked: Asked) -> Redriven:
    number = 0
    while True:
        # One that cannot be read here can be let go on all the same.
        (snapshot,) = store.snapshots([session_id], strict=False)
        if snapshot is None:
            return Redriven(session_id=session_id, answer="unknown")
        head = snapshot.head
        if not is_quarantined(snapshot) or number not in (0, head.quarantine_no):
            now = shown_status(head.status)
            return Redriven(session_id=session_id, answer="not_quarantined", status=now)
        number = head.quarantine_no
        gone = given_up(snapshot, asked.drop, store.now_ms())
        if asked.dry_run:
            return Redriven(
                session_id=session_id,
                answer="would_redrive",
                status=shown_status(head.status),
                dropped=gone.submissions,
                ended_turn=gone.turn or None,
            )
        everything = asked.drop == "all"
        let_go = store.quarantine.dead_letter if everything else store.quarantine.redrive
        status = let_go(session_id, head, gone, by=asked.by)
        if status is not None:
            return Redriven(
                session_id=session_id,
                answer="redriven",
                status=shown_status(status),
                dropped=gone.submissions,
                ended_turn=gone.turn or None,
            )
        # Somebody else has ended the quarantine; or it has moved, or lost what was to be dropped.
