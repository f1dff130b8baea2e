"""Follow one session's journal by its numbers.

A number is used once in a server's history. A failover that loses events begins another history,
the next epoch, which uses the lost numbers again: what a follower has seen is a pair of the
highest epoch and a number, and a bare number is one of the epoch that is current when it is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from changeover._answers import gap_after
from changeover._backoff import pauses
from changeover._pages import After, first_cursor
from changeover_shared._errors import StoreUnavailable, UnknownSession, UnknownSubmission
from changeover_shared._events import (
    Event,
    Gap,
    SessionClosed,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    ending_of,
)
from changeover_shared._store.records import Pulse
from changeover_shared._store.store import Store
from changeover_shared._words import Status

PAGE = 1000
LOOK_BACK = 100
BLOCK_MS = 5_000

_ENDS = (TurnCompleted, TurnAborted, TurnFailed, SessionClosed)
"""After these there may be nothing more to wait for: what ended is looked up at once."""


class Follower:
    """One reader of one journal: where it stands, and when it has seen all that it wants."""

    def __init__(self, store: Store, session_id: str, until: str | None) -> None:
        self._store = store
        self._session_id = session_id
        self._until = until
        self._end_seq: int | None = None
        self._cursor = 0
        self._epoch = 0
        self._caught_up = False

    async def events(self, after: After) -> AsyncGenerator[Event]:
        """Yield what comes after `after`, each event once and in order.

        Ends with the ending of `until`, or when a closed session has nothing more to tell. Raises
        `UnknownSession`, `UnknownSubmission`, and `StoreUnavailable` only before the first read
        has succeeded; afterwards it reconnects for as long as it is iterated.
        """
        pulse = await self._pulse()
        self._cursor, self._epoch = first_cursor(after, pulse.seq), pulse.epoch
        gap = gap_after(self._cursor, pulse.first_seq)
        over = await self._is_over(pulse)
        if gap is not None and not over:
            self._cursor = gap.seq
            yield gap
            over = await self._is_over(pulse)
        backoff = pauses()
        while not over:
            try:
                page = await self._read()
                gap = None
                if not self._continues(page):
                    pulse = await self._pulse()
                    gap = await self._gap_before(page, pulse)
                    over = not page and gap is None and await self._is_over(pulse)
            except StoreUnavailable:
                self._caught_up = False
                await asyncio.sleep(next(backoff))
                continue
            backoff = pauses()
            if gap is not None:
                self._cursor = gap.seq
                if gap.reason == "rewound":
                    # What the page has before its first event is unread: it is read once more.
                    page = self._go_back(pulse)
                yield gap
            for event in page:
                self._cursor, self._epoch = event.seq, max(self._epoch, event.epoch)
                yield event
                if self._is_last(event):
                    return
            if any(isinstance(event, _ENDS) for event in page):
                self._caught_up = False

    async def _read(self) -> tuple[Event, ...]:
        """The next events: a page while there are some, else what comes within the block time."""
        if self._caught_up:
            return await self._store.wait_journal(
                self._session_id, after=self._cursor, block_ms=BLOCK_MS
            )
        page = await self._store.journal(self._session_id, after=self._cursor, limit=PAGE)
        self._caught_up = len(page) < PAGE
        return page

    def _continues(self, page: tuple[Event, ...]) -> bool:
        """Whether `page` begins right after the cursor, in the history that is followed."""
        return bool(page) and page[0].seq == self._cursor + 1 and page[-1].epoch <= self._epoch

    async def _gap_before(self, page: tuple[Event, ...], pulse: Pulse) -> Gap | None:
        """What lies between what was seen and `page`: numbers used again, or what retention took.

        A hole alone is no gap: the streamed text of a completed step leaves the journal as well.
        """
        if pulse.epoch > self._epoch:
            first = await self._used_again_from(pulse)
            if first <= self._cursor:
                return Gap(seq=first - 1, first=first, last=self._cursor, reason="rewound")
        if not page:
            return None
        return gap_after(self._cursor, pulse.first_seq, before=page[0].seq)

    async def _used_again_from(self, pulse: Pulse) -> int:
        """The first number that was written in an epoch after the follower's.

        The pulse knows where the newest epoch began; those before it are told by their events.
        """
        first = pulse.epoch_seq
        place = min(first, self._cursor + 1)
        while True:
            page = await self._store.journal_back(self._session_id, before=place, limit=LOOK_BACK)
            newer = [event.seq for event in page if event.epoch > self._epoch]
            first = place = min(newer, default=first)
            if len(newer) < LOOK_BACK:
                return first

    def _go_back(self, pulse: Pulse) -> tuple[Event, ...]:
        """Follow another history from the cursor on; no event of it has been read."""
        self._epoch = pulse.epoch
        self._end_seq = None
        self._caught_up = False
        return ()

    def _is_last(self, event: Event) -> bool:
        if self._until is None:
            return False
        return ending_of(event, self._until) is not None or event.seq == self._end_seq

    async def _is_over(self, pulse: Pulse) -> bool:
        """Whether nothing that this follower wants can come after its cursor."""
        if self._until is not None:
            state = (await self._store.submissions([(self._session_id, self._until)]))[0]
            if state is None:
                raise UnknownSubmission(session_id=self._session_id, submission_id=self._until)
            self._end_seq = None if state.ending is None else state.end_seq
            return self._end_seq is not None and self._end_seq <= self._cursor
        return pulse.status in (Status.CLOSED, Status.DELETED) and pulse.seq <= self._cursor

    async def _pulse(self) -> Pulse:
        pulse = await self._store.pulse(self._session_id)
        if pulse is None:
            raise UnknownSession(session_id=self._session_id)
        return pulse
