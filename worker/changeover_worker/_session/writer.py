"""One outstanding write per session: the recorder's appends and the runner's commits take turns.

A write that was begun is always brought to its answer, even when whoever asked for it is
cancelled: the store repeats it under the same number or id until Redis has answered, and the next
write waits for that. So the order of a session's writes is the order in which they were asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from changeover_shared._errors import LeaseError
from changeover_shared._events import Delta, Event
from changeover_shared._store.records import (
    Appended,
    BatchGap,
    Commit,
    CommitRefused,
    Committed,
    Lease,
)
from changeover_shared._words import GiveUp
from changeover_worker._session.held import Held
from changeover_worker._session.reader import Reader

T = TypeVar("T")


class LeasedWrites(Protocol):
    """The writes of a `LeaseStore` that need the lease."""

    async def append(self, lease: Lease, batch_no: int, events: Sequence[Event]) -> Appended: ...

    async def commit(self, lease: Lease, commit: Commit) -> Committed | CommitRefused: ...

    async def give_up(self, lease: Lease, reason: GiveUp) -> bool: ...


class Writer:
    """Writes one session under one grant, one call at a time.

    The first refused lease is the last call that leaves the process: from then on every write
    raises that `LeaseError`. With a reader a write is over when that has its events.
    """

    __slots__ = ("_batch_no", "_held", "_lock", "_reader", "_store")

    def __init__(self, store: LeasedWrites, held: Held, reader: Reader | None = None) -> None:
        self._store = store
        self._held = held
        self._reader = reader
        self._lock = asyncio.Lock()
        self._batch_no = 0

    @property
    def session_id(self) -> str:
        """Whose writes these are."""
        return self._held.lease.session_id

    async def append(self, events: Sequence[Event]) -> Appended:
        """Write events between two commits. Raises `LeaseError`."""
        return await self._bring_to_its_answer("append", self._append(events))

    async def commit(self, commit: Commit) -> Committed | CommitRefused:
        """Write one commit. Raises `LeaseError`."""
        return await self._bring_to_its_answer("commit", self._commit(commit))

    async def give_up(self, reason: GiveUp) -> bool:
        """Give the session up, once what is in flight has its answer."""
        return await self._bring_to_its_answer("give_up", self._give_up(reason))

    async def _append(self, events: Sequence[Event]) -> Appended:
        try:
            answer = await self._store.append(self._held.lease, self._batch_no + 1, events)
        except BatchGap as rewound:
            # The text still belongs to the step; the next commit finds out what else is gone.
            self._batch_no = rewound.batch
            answer = await self._store.append(self._held.lease, self._batch_no + 1, events)
        self._batch_no += 1
        self._held.note_control(answer.ctl_epoch)
        if self._reader is not None:
            written = [e for e in events if not (answer.dropped and isinstance(e, Delta))]
            await self._reader.take(written, answer.first_seq)
        return answer

    async def _commit(self, commit: Commit) -> Committed | CommitRefused:
        answer = await self._store.commit(self._held.lease, commit)
        if self._reader is not None and isinstance(answer, Committed):
            await self._reader.take(commit.events, answer.first_seq)
        return answer

    async def _give_up(self, reason: GiveUp) -> bool:
        return await self._store.give_up(self._held.lease, reason)

    async def _bring_to_its_answer(self, script: str, write: Coroutine[Any, Any, T]) -> T:
        answer = await asyncio.shield(asyncio.ensure_future(self._in_turn(script, write)))
        if isinstance(answer, LeaseError):
            raise answer
        return answer

    async def _in_turn(self, script: str, write: Coroutine[Any, Any, T]) -> T | LeaseError:
        async with self._lock:
            if self._held.lost is not None:
                write.close()
                return self._held.lost
            try:
                return await write
            except LeaseError as why:
                self._held.refused = script
                self._held.note_lost(why)
                if self._reader is not None:
                    self._reader.end()
                return why
