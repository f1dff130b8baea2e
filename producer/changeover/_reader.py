"""The connection of a client, and everything that it reads."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from changeover._answers import gap_after, info_of
from changeover._catalogue import Wanted, list_sessions
from changeover._follow import PAGE
from changeover._pages import checked_limit, number_before, page_of, place_before
from changeover._turn_page import turn_page
from changeover_shared._errors import UnknownSession
from changeover_shared._events import Event
from changeover_shared._identifiers import identifier, name
from changeover_shared._results import Page, SessionInfo, TranscriptItem, TurnRecord
from changeover_shared._server.url import redis_url
from changeover_shared._settings import Settings, read_settings
from changeover_shared._store.closing import refuse_if
from changeover_shared._store.records import Snapshot
from changeover_shared._store.store import Store
from changeover_shared._view import View
from changeover_shared._words import SessionStatus


class Reader:
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
        self._store: Store | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; what was accepted goes on. May be repeated.

        Whatever still reads or waits through this client ends at once with `Invalid`.
        """
        self._closed = True
        async with self._opening:
            store, self._store = self._store, None
        if store is not None:
            await store.aclose()

    async def session(self, session: str) -> SessionInfo:
        """How a session stands now. Raises `UnknownSession`."""
        snapshot = await self._snapshot(session)
        return info_of(snapshot, await (await self._opened()).now_ms())

    async def sessions(
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
        return await list_sessions(await self._opened(), wanted, place, most)

    async def view(self, session: str) -> View:
        """What a screen shows of a session, folded from its journal up to `view.seq`."""
        snapshot = await self._snapshot(session)
        store = await self._opened()
        hidden = gap_after(0, snapshot.head.first_seq)
        view = View() if hidden is None else View().apply(hidden)
        while page := await store.journal(snapshot.session_id, after=view.seq, limit=PAGE):
            view = view.apply_all(page)
        return view

    async def events(
        self, session: str, *, before: int | str | None = None, limit: int = 100
    ) -> Page[Event]:
        """The journal, newest first; `next` is the `before` of the older ones."""
        wanted = checked_limit(limit)
        place = number_before(before)
        session_id = (await self._snapshot(session)).session_id
        store = await self._opened()
        items = await store.journal_back(session_id, before=place, limit=wanted + 1)
        return page_of(items, wanted, lambda event: event.seq)

    async def transcript(
        self, session: str, *, before: int | str | None = None, limit: int = 100
    ) -> Page[TranscriptItem]:
        """Messages, tool calls, results and handlers' steps, newest first."""
        wanted = checked_limit(limit)
        place = number_before(before)
        session_id = (await self._snapshot(session)).session_id
        store = await self._opened()
        items = await store.transcript_back(session_id, before=place, limit=wanted + 1)
        return page_of(items, wanted, lambda item: item.n)

    async def turns(
        self, session: str, *, before: int | str | None = None, limit: int = 100
    ) -> Page[TurnRecord]:
        """Finished turns, newest first."""
        wanted = checked_limit(limit)
        place = number_before(before)
        session_id = (await self._snapshot(session)).session_id
        store = await self._opened()
        items = await store.turns_back(session_id, before=place, limit=wanted + 1)
        page = page_of(items, wanted, lambda item: item[0])
        return Page(items=tuple(record for _, record in page.items), next=page.next)

    async def turn_events(self, session: str, *, before: int | str | None = None) -> Page[Event]:
        """One whole turn, newest event first, however many it has; `next` is the `before` of the
        turn before it.

        It is the newest turn, as far as it has come, or the newest that has ended before an
        event. What was told between two turns belongs to neither. Empty when there is none.
        """
        place = number_before(before)
        snapshot = await self._snapshot(session)
        first_seq = snapshot.head.first_seq
        store = await self._opened()
        return await turn_page(store, snapshot.session_id, before=place, first_seq=first_seq)

    async def _opened(self) -> Store:
        async with self._opening:
            refuse_if(self._closed)
            if self._store is None:
                url = redis_url(self._url, self._settings)
                self._store = await Store.open(url, self._settings)
            return self._store

    async def _snapshot(self, session: str) -> Snapshot:
        session_id = identifier(session, field="session")
        store = await self._opened()
        snapshot = await store.snapshot(session_id)
        if snapshot is None:
            raise UnknownSession(session_id=session_id)
        return snapshot
