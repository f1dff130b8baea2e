# Written by tools/generate_sync.py from _reader.py: change that file instead.
"""The connection of a client, and everything that it reads."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from changeover._answers import gap_after, info_of
from changeover._pages import checked_limit, number_before, page_of, place_before
from changeover._sync_catalogue import Wanted, list_sessions
from changeover._sync_follow import PAGE
from changeover._sync_turn_page import turn_page
from changeover_shared._errors import UnknownSession
from changeover_shared._events import Event
from changeover_shared._identifiers import identifier, name
from changeover_shared._results import Page, SessionInfo, TranscriptItem, TurnRecord
from changeover_shared._server.url import redis_url
from changeover_shared._settings import Settings, read_settings
from changeover_shared._store.closing import refuse_if
from changeover_shared._store.records import Snapshot
from changeover_shared._store.sync_store import SyncStore
from changeover_shared._view import View
from changeover_shared._words import SessionStatus


class SyncReader:
    """Read what sessions are and have done; nothing is changed by it."""

    def __init__(
        self,
        url: str | None = None,
        *,
        tenant: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        known = settings or read_settings()
        if tenant is not None:
            known = known.model_copy(update={"tenant": name(tenant, field="tenant")})
        self._settings = known
        self._url = url
        self._store: SyncStore | None = None
        self._opening = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; what was accepted goes on. May be repeated.

        Whatever still reads or waits through this client ends at once with `Invalid`.
        """
        self._closed = True
        with self._opening:
            store, self._store = self._store, None
        if store is not None:
            store.close()

    def session(self, session: str) -> SessionInfo:
        """How a session stands now. Raises `UnknownSession`."""
        snapshot = self._snapshot(session)
        return info_of(snapshot, (self._opened()).now_ms())

    def sessions(
        self,
        *,
        agent: str | None = None,
        queue: str | None = None,
        status: SessionStatus | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[SessionInfo]:
        """Sessions by creation, newest first; the page's `next` is the cursor of the older ones.

        A page of a rare kind may be short, even empty, and still have a `next`.
        """
        wanted = Wanted(agent, queue, status)
        place, most = place_before(cursor), checked_limit(limit)
        return list_sessions(self._opened(), wanted, place, most)

    def view(self, session: str) -> View:
        """What a screen shows of a session, folded from its journal up to `view.seq`."""
        snapshot = self._snapshot(session)
        store = self._opened()
        hidden = gap_after(0, snapshot.head.first_seq)
        view = View() if hidden is None else View().apply(hidden)
        while page := store.journal(snapshot.session_id, after=view.seq, limit=PAGE):
            view = view.apply_all(page)
        return view

    def events(
        self, session: str, *, before: int | str | None = None, limit: int = 100
    ) -> Page[Event]:
        """The journal, newest first; `next` is the `before` of the older ones."""
        wanted = checked_limit(limit)
        place = number_before(before)
        session_id = (self._snapshot(session)).session_id
        store = self._opened()
        items = store.journal_back(session_id, before=place, limit=wanted + 1)
        return page_of(items, wanted, lambda event: event.seq)

    def transcript(
        self, session: str, *, before: int | str | None = None, limit: int = 100
    ) -> Page[TranscriptItem]:
        """Messages, tool calls, results and handlers' steps, newest first."""
        wanted = checked_limit(limit)
        place = number_before(before)
        session_id = (self._snapshot(session)).session_id
        store = self._opened()
        items = store.transcript_back(session_id, before=place, limit=wanted + 1)
        return page_of(items, wanted, lambda item: item.n)

    def turns(
        self, session: str, *, before: int | str | None = None, limit: int = 100
    ) -> Page[TurnRecord]:
        """Finished turns, newest first."""
        wanted = checked_limit(limit)
        place = number_before(before)
        session_id = (self._snapshot(session)).session_id
        store = self._opened()
        items = store.turns_back(session_id, before=place, limit=wanted + 1)
        page = page_of(items, wanted, lambda item: item[0])
        return Page(items=tuple(record for _, record in page.items), next=page.next)

    def turn_events(self, session: str, *, before: int | str | None = None) -> Page[Event]:
        """One whole turn, newest event first, however many it has; `next` is the `before` of the
        turn before it.

        It is the newest turn, as far as it has come, or the newest that has ended before an
        event. What was told between two turns belongs to neither. Empty when there is none.
        """
        place = number_before(before)
        snapshot = self._snapshot(session)
        first_seq = snapshot.head.first_seq
        store = self._opened()
        return turn_page(store, snapshot.session_id, before=place, first_seq=first_seq)

    def _opened(self) -> SyncStore:
        with self._opening:
            refuse_if(self._closed)
            if self._store is None:
                url = redis_url(self._url, self._settings)
                self._store = SyncStore.open(url, self._settings)
            return self._store

    def _snapshot(self, session: str) -> Snapshot:
        session_id = identifier(session, field="session")
        store = self._opened()
        snapshot = store.snapshot(session_id)
        if snapshot is None:
            raise UnknownSession(session_id=session_id)
        return snapshot
