"""A held session in memory: read when it is granted, moved on by each commit.

While the lease stands nobody else writes checkpoint or transcript, so they are read once and then
follow the commits. What waits is read again only when a commit's answer says that there is more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Protocol

from changeover_shared._checkpoint import Checkpoint, decode_checkpoint
from changeover_shared._errors import FormatTooNew
from changeover_shared._items import AnyItem, Item, ToolResult
from changeover_shared._results import TranscriptItem
from changeover_shared._store.records import Committed, Grant, Head, InboxEntry, Waiting, Work
from changeover_shared._words import CommitKind, WorkerChange
from changeover_worker._turn.context import LOST_BEGINNING, decode_prefix, entries, narration
from changeover_worker._turn.draft import Draft
from changeover_worker._turn.given_up import without_given_up
from changeover_worker._turn.shown import Shown, shown


class Unreadable(Exception):
    """What the store holds of the session cannot be read here: newer than this, or damaged."""


class SessionReads(Protocol):
    """The plain reads of a `LeaseStore`."""

    async def read_head(self, session_id: str) -> Head | None: ...

    async def read_position(self, session_id: str) -> int: ...

    async def read_work(self, session_id: str) -> Work: ...

    async def read_inbox(self, session_id: str, after_n: int = 0) -> tuple[InboxEntry, ...]: ...

    async def read_checkpoint(self, session_id: str) -> bytes | None: ...

    async def read_context(self, session_id: str, epoch: int) -> bytes | None: ...

    async def read_transcript(
        self, session_id: str, from_n: int = 1
    ) -> tuple[TranscriptItem, ...]: ...


class Loaded:
    """One session's state as of its last commit. One task uses it."""

    __slots__ = (
        "_bodies",
        "_known_n",
        "_shortened",
        "_shown",
        "_stale",
        "_store",
        "_waiting",
        "agent",
        "checkpoint",
        "context",
        "ctl_epoch",
        "damage",
        "epoch",
        "fresh",
        "interrupted_turn",
        "items",
        "prefix",
        "rev",
        "route",
        "session_id",
        "taken_over",
        "tenant",
        "transcript_n",
        "turns",
    )

    def __init__(self, store: SessionReads, session_id: str) -> None:
        self._store = store
        self.session_id = session_id
        self.checkpoint = Checkpoint(session_id=session_id)
        self.prefix: tuple[Item, ...] = ()
        """The rewritten beginning of the context."""
        self.items: list[AnyItem] = []
        """The transcript from `checkpoint.context_from` on."""
        self.transcript_n = 0
        """The number of the transcript's last item."""
        self.damage = ""
        """Why the rewritten beginning is not what was written; '' as a rule."""
        self.rev = self.turns = self.epoch = self.ctl_epoch = 0
        self.route = self.agent = self.tenant = self.interrupted_turn = ""
        self.context: Mapping[str, str] = {}
        self.fresh = True
        """Whether everything that waits is known."""
        self._stale = False
        self.taken_over = False
        """Whether the holder before ended without handing it off, and no commit counts it yet."""
        self._waiting = Work((), ())
        self._bodies: dict[int, InboxEntry] = {}
        self._known_n = 0
        self._shown: Shown | None = None
        self._shortened: dict[int, ToolResult] = {}

    async def take_over(self, grant: Grant) -> None:
        """Read what the grant does not carry. Raises `Unreadable`."""
        body = grant.checkpoint
        if body is None and grant.head.rev:
            body = await self._store.read_checkpoint(self.session_id)
        why = grant.head.raw.get("lapsed_why", "")
        self.taken_over = bool(grant.lapsed) and why != WorkerChange.HANDED_OFF
        await self._set(grant.head, grant.work, grant.inbox, body)

    async def read_again(self) -> None:
        """Read everything, because what was known turned out to be stale. Raises `Unreadable`."""
        head, work, inbox, body = await asyncio.gather(
            self._store.read_head(self.session_id),
            self._store.read_work(self.session_id),
            self._store.read_inbox(self.session_id),
            self._store.read_checkpoint(self.session_id),
        )
        if head is None:
            raise Unreadable(f"session {self.session_id!r} has no head any more")
        await self._set(head, work, inbox, body)

    async def read_arrivals(self) -> None:
        """Read what waits, if more has come than is known."""
        if self.fresh:
            return
        work, inbox = await asyncio.gather(
            self._store.read_work(self.session_id),
            self._store.read_inbox(self.session_id),
        )
        self._set_inbox(work, inbox)
        self._known_n = max([self._known_n, *(input.n for input in work.waiting)])
        self.fresh, self._stale = True, False

    def doubt_arrivals(self) -> None:
        """Something that was known to wait has gone: read what waits before it is used again."""
        self.fresh, self._stale = False, True

    async def look_for_arrivals(self) -> None:
        """Ask whether more has come since a commit said so, and read it."""
        if self.fresh:
            self.fresh = await self._store.read_position(self.session_id) <= self._known_n
        await self.read_arrivals()

    def shown(self) -> Shown:
        """What the model is shown."""
        if self._shown is None:
            at = self.checkpoint
            found = entries(self.prefix, self.items, at.context_from, at.left_out)
            self._shown = shown(found, self._shortened)
        return self._shown

    def due_inputs(self, now_ms: int) -> tuple[Waiting, ...]:
        """The inputs that a turn may take now, in order."""
        return self._waiting.open_inputs(now_ms)

    async def body(self, n: int) -> InboxEntry | None:
        """An input's body; None when it was settled meanwhile."""
        if n not in self._bodies:
            inbox = await self._store.read_inbox(self.session_id, n - 1)
            self._bodies = {entry.n: entry for entry in inbox}
        return self._bodies.get(n)

    def follow(self, draft: Draft, committed: Committed) -> None:
        """Move on by a commit that is durable."""
        before, self.checkpoint = self.checkpoint, draft.checkpoint
        self.transcript_n += len(draft.items)
        self.items += draft.items
        self._shown = None
        if draft.prefix:
            self._rewrite(before, draft)
        self.rev = committed.rev
        self.turns += draft.kind is CommitKind.START
        self.taken_over = False
        for n in draft.take:
            self._bodies.pop(n, None)
        self._waiting = Work(
            waiting=tuple(w for w in self._waiting.waiting if w.n not in draft.take),
            waits=self._waiting.waits,
        )
        self.fresh = committed.n <= self._known_n and not self._stale

    async def _set(
        self, head: Head, work: Work, inbox: tuple[InboxEntry, ...], body: bytes | None
    ) -> None:
        try:
            self.checkpoint = without_given_up(self._decode(body, head), head.turn)
            self.prefix = await self._read_prefix()
            self.items = await self._read_items(head)
            self.context = read_context(head.context)
        except (FormatTooNew, ValueError) as error:
            raise Unreadable(str(error)) from error
        self._shown = None
        self._shortened = {}
        self.transcript_n = head.transcript_n
        self.rev, self.turns, self.epoch = head.rev, head.turns, head.epoch
        self.route, self.agent, self.tenant = head.route, head.agent, head.tenant
        self.ctl_epoch = head.ctl_epoch
        self.interrupted_turn = head.ctl_turn
        """The turn that a control waited for when the head was read, or ''."""
        self._set_inbox(work, inbox)
        self._known_n = head.n
        self.fresh, self._stale = True, False

    def _decode(self, body: bytes | None, head: Head) -> Checkpoint:
        if body is None:
            # Its numbers go on from those of a life before, or of sessions that are forgotten.
            return Checkpoint(session_id=self.session_id, context_from=head.transcript_n + 1)
        return decode_checkpoint(body, session_id=self.session_id)

    async def _read_prefix(self) -> tuple[Item, ...]:
        epoch = self.checkpoint.context_epoch
        self.damage = ""
        if not epoch:
            return ()
        try:
            return decode_prefix(await self._store.read_context(self.session_id, epoch))
        except ValueError as error:
            # What was summarised still stands in the transcript; the session goes on without it.
            self.damage = str(error)
            return (narration(LOST_BEGINNING),)

    def _rewrite(self, before: Checkpoint, draft: Draft) -> None:
        """Follow a commit that replaced the beginning of the context."""
        self.prefix = decode_prefix(draft.prefix)
        self.damage = ""
        del self.items[: draft.checkpoint.context_from - before.context_from]
        self._shortened = {}

    async def _read_items(self, head: Head) -> list[AnyItem]:
        first = self.checkpoint.context_from
        if head.transcript_n < first:
            return []
        return [e.item for e in await self._store.read_transcript(self.session_id, first)]

    def _set_inbox(self, work: Work, inbox: tuple[InboxEntry, ...]) -> None:
        self._waiting = work
        self._bodies = {entry.n: entry for entry in inbox}


def read_context(text: str) -> Mapping[str, str]:
    """A session's context, as its head has it: text for text. Raises `ValueError`."""
    values = json.loads(text or "{}")
    pairs = values.items() if isinstance(values, dict) else ()
    return {name: value for name, value in pairs if isinstance(value, str)}
