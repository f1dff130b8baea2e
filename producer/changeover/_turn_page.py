"""One whole turn of a journal, however many events it has."""

from __future__ import annotations

from typing import Final

from changeover_shared._events import (
    Event,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    ending_of,
)
from changeover_shared._results import Page
from changeover_shared._store.store import Store

READ_AT_ONCE: Final = 100


async def turn_page(
    store: Store, session_id: str, *, before: int | None, first_seq: int
) -> Page[Event]:
    """Read the newest turn that lies whole before an event's number, newest event first.

    `first_seq` is the number of the oldest event that the journal has.
    """
    found, place = TurnBefore(ended=before is not None), before
    while events := await store.journal_back(session_id, before=place, limit=READ_AT_ONCE):
        for event in events:
            if found.take(event):
                return found.page(first_seq)
        place = events[-1].seq
    return found.page(first_seq)


class TurnBefore:
    """Finds the newest turn among events that come newest first.

    A turn reaches from its first event to its last one, with all that was told in between; what
    stands between two turns belongs to neither. With `ended`, a turn whose end has not come by
    is left out: the reading began in its middle.
    """

    def __init__(self, *, ended: bool) -> None:
        self._ended = ended
        self._turn: str | None = None
        self._left_out: str | None = None
        self._events: list[Event] = []
        self._own = 0
        self._older = False

    def take(self, event: Event) -> bool:
        """Take the next older event; whether nothing more is needed."""
        if event.turn_id is None or event.turn_id == self._left_out:
            if self._turn is not None:
                self._events.append(event)
            return False
        if self._turn is None and self._ended and not _ends_turn(event):
            self._ended, self._left_out = False, event.turn_id
            return False
        self._turn = self._turn or event.turn_id
        if event.turn_id != self._turn:
            self._older = True
            return True
        self._events.append(event)
        self._own = len(self._events)
        return False

    def page(self, first_seq: int) -> Page[Event]:
        """The turn; empty if there is none, or retention has taken its beginning."""
        events = tuple(self._events[: self._own])
        if not events or not _is_whole(events, first_seq):
            return Page(items=())
        return Page(items=events, next=str(events[-1].seq) if self._older else None)


def _ends_turn(event: Event) -> bool:
    if isinstance(event, TurnCompleted | TurnAborted | TurnFailed):
        return True
    return event.submission_id is not None and ending_of(event, event.submission_id) is not None


def _is_whole(events: tuple[Event, ...], first_seq: int) -> bool:
    """Whether the oldest of them began the turn, and was not merely left of it."""
    begun = any(isinstance(event, TurnStarted) for event in events)
    return begun or first_seq <= 1 or events[-1].seq > first_seq
