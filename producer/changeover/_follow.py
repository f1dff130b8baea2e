"""Follow one session's journal by its numbers."""

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
from changeover_shared._store.records import Head
from changeover_shared._store.store import Store
from changeover_shared._words import Status

PAGE = 1000
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
        self._caught_up = False

    async def events(self, after: After) -> AsyncGenerator[Event]:
        """Yield what comes after `after`, each event once and in order.

        Ends with the ending of `until`, or when a closed session has nothing more to tell. Raises
        `UnknownSession`, `UnknownSubmission`, and `StoreUnavailable` only before the first read
        has succeeded; afterwards it reconnects for as long as it is iterated.
        """
        head = await self._head()
        self._cursor = first_cursor(after, head.seq)
        hidden = gap_after(self._cursor, head.first_seq)
        over = await self._is_over(head)
        if hidden is not None and not over:
            self._cursor = hidden.last
            yield hidden
            over = await self._is_over(head)
        backoff = pauses()
        while not over:
            try:
                page = await self._read()
                hidden = await self._hidden_before(page)
                over = not page and await self._is_over(await self._head())
            except StoreUnavailable:
                self._caught_up = False
                await asyncio.sleep(next(backoff))
                continue
            backoff = pauses()
            if hidden is not None:
                self._cursor = hidden.last
                yield hidden
            for event in page:
                self._cursor = event.seq
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

    async def _hidden_before(self, page: tuple[Event, ...]) -> Gap | None:
        """What retention has taken between the cursor and `page`.

        A hole alone is no gap: the streamed text of a completed step leaves the journal as well.
        """
        if not page or page[0].seq <= self._cursor + 1:
            return None
        return gap_after(self._cursor, (await self._head()).first_seq, before=page[0].seq)

    def _is_last(self, event: Event) -> bool:
        if self._until is None:
            return False
        return ending_of(event, self._until) is not None or event.seq == self._end_seq

    async def _is_over(self, head: Head) -> bool:
        """Whether nothing that this follower wants can come after its cursor."""
        if self._until is not None:
            state = (await self._store.submissions([(self._session_id, self._until)]))[0]
            if state is None:
                raise UnknownSubmission(session_id=self._session_id, submission_id=self._until)
            self._end_seq = None if state.ending is None else state.end_seq
            return self._end_seq is not None and self._end_seq <= self._cursor
        return head.status in (Status.CLOSED, Status.DELETED) and head.seq <= self._cursor

    async def _head(self) -> Head:
        snapshot = await self._store.snapshot(self._session_id)
        if snapshot is None:
            raise UnknownSession(session_id=self._session_id)
        return snapshot.head
