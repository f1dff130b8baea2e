"""A session's one recorder: what is said between two commits, on its way into the journal.

The first delta of a stream is written at once, so that a reader sees it soon; later ones are
merged for up to 40 ms or 16 KiB, so that a burst costs few writes. A provider's delta is never
split, and whatever else is recorded comes after the text that was there before it.

To admit is not to write: of buffered text only a barrier (`flush`, a commit, the end of its step)
says that it is durable. What counts is the text that the step's end commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from changeover_shared._errors import ChangeoverError, TooLarge
from changeover_shared._events import Delta, Event
from changeover_shared._items import Phase
from changeover_shared._store.records import Commit, CommitRefused, Committed
from changeover_shared._words import GiveUp
from changeover_worker._session.admitted import (
    Admitted,
    Barrier,
    Stream,
    Text,
    Whole,
    cost_of,
    cost_of_text,
)
from changeover_worker._session.backlog import CAPACITY, CAPACITY_BYTES, Backlog, Put
from changeover_worker._session.writer import Writer

MERGE_S: Final = 0.040
"""How long text waits for more to merge with, from its first delta on."""


class RecorderFull(ChangeoverError):
    """Too much is on its way to Redis. The event was not taken; what was before it goes on."""

    code = "recorder_full"

    def __init__(self, *, session_id: str, count: int, size: int) -> None:
        super().__init__(
            f"{count} of {CAPACITY} events of session {session_id!r}, {size} of {CAPACITY_BYTES} "
            "bytes, are on their way to Redis; this one was not taken; await record instead"
        )


class RecorderStopped(ChangeoverError):
    """An earlier write failed, and nothing is recorded any more."""

    code = "recorder_stopped"

    def __init__(self, *, session_id: str, first: Exception) -> None:
        super().__init__(
            f"session {session_id!r} records nothing any more: {first}; "
            "what was not durable then is dropped; let the session go"
        )
        self.first = first
        """The failure that stopped it."""


class Recorder:
    """Brings what a held session writes to Redis, in the order in which it was asked for.

    The first failure stays: nothing is written after it, and every call tells of it.
    """

    __slots__ = (
        "__weakref__",
        "_backlog",
        "_failure",
        "_room",
        "_timer",
        "_turnstile",
        "_waiting",
        "_writer",
        "_writing",
    )

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._backlog = Backlog()
        self._failure: Exception | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._turnstile = asyncio.Lock()
        self._waiting = 0

    @property
    def session_id(self) -> str:
        """Whose events these are."""
        return self._writer.session_id

    async def record(self, event: Event) -> None:
        """Write an event; returns when it is durable and handed to the reader, if there is one.

        Waits while too much is on its way. A delta that is merged is only admitted. Raises
        `TooLarge` for what could never be written, `Invalid` for what is no JSON, the failure of
        its own write as it is (a `LeaseError` as a rule), and `RecorderStopped` after another's.
        """
        cost = self._checked(cost_of(event))
        if self._waiting or not self._backlog.fits(cost):
            await self._make_way(cost, lambda: None)
        done = asyncio.get_running_loop().create_future()
        if self._admit(event, cost, done) is Put.QUEUED:
            await done

    def try_record(self, event: Event) -> None:
        """Admit an event without waiting; a later `flush` tells whether it was written.

        Raises `RecorderFull` when too much is on its way, which ends nothing, and what `record`
        raises.
        """
        cost, backlog = self._checked(cost_of(event)), self._backlog
        if not backlog.fits(cost):
            raise RecorderFull(session_id=self.session_id, count=backlog.count, size=backlog.size)
        self._admit(event, cost, None)

    async def flush(self) -> None:
        """Return when all that was admitted, buffered text too, is durable and handed over.

        Raises `RecorderStopped` after any failure.
        """
        await self._settle()
        self._refuse_if_stopped()

    async def commit(self, commit: Commit) -> Committed | CommitRefused:
        """Write a commit, after all that was admitted. Raises the first failure as it is."""
        await self._settle()
        self._raise_failure()
        return await self._writer.commit(commit)

    async def give_up(self, reason: GiveUp) -> bool:
        """Give the session up, after all that was admitted. Raises `LeaseError`."""
        await self._settle()
        return await self._writer.give_up(reason)

    def take_text(self, stream: Stream, text: str, phase: Phase) -> int:
        """Admit a step's delta, or answer how many bytes it is if there is no room for it.

        Raises what `try_record` raises, except `RecorderFull`.
        """
        cost, backlog = cost_of_text(text, phase), self._backlog
        if cost > CAPACITY_BYTES or self._failure is not None:
            self._checked(cost)
        if self._waiting or not backlog.fits(cost):
            return cost
        put = backlog.put_text(stream, text, phase, cost)
        if put is not Put.MERGED:
            self._follow(put)
        return 0

    async def take_text_later(
        self, stream: Stream, text: str, phase: Phase, cost: int, refuse: Callable[[], None]
    ) -> None:
        """Wait for room and admit a step's delta; `refuse` raises once the step has ended."""
        await self._make_way(cost, refuse)
        self._follow(self._backlog.put_text(stream, text, phase, cost))

    def close(self, stream: Stream) -> None:
        """Begin no further write for the sake of a stream, and let nobody wait for its room."""
        stream.closed = True
        self._make_room()

    async def take_back(self, stream: Stream) -> list[Event]:
        """What was admitted of a closed stream and is not written; the commit takes it along.

        What is in flight gets its answer first. Raises the first failure as it is.
        """
        self._seal()
        if self._writing is not None:
            await asyncio.shield(self._writing)
        self._raise_failure()
        self._backlog.end_stream()
        return self._backlog.take_back(stream)

    def _checked(self, cost: int) -> int:
        if cost > CAPACITY_BYTES:
            raise TooLarge(what="an event", size=cost, limit=CAPACITY_BYTES)
        self._refuse_if_stopped()
        return cost

    def _admit(self, event: Event, cost: int, done: asyncio.Future[None] | None) -> Put:
        put = Put.QUEUED
        if isinstance(event, Delta):
            put = self._backlog.put_delta(event, cost, done)
        else:
            self._backlog.put(Whole(event, cost, done))
        self._follow(put)
        return put

    def _follow(self, put: Put) -> None:
        """Do what has to be done now that something was put in."""
        if put is Put.MERGED:
            return
        self._stop_timer()
        self._write()
        if put is Put.BEGUN:
            self._timer = asyncio.get_running_loop().call_later(MERGE_S, self._flush_text)

    def _flush_text(self) -> None:
        self._seal()
        self._write()

    def _seal(self) -> None:
        self._stop_timer()
        self._backlog.seal()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _settle(self) -> None:
        """Wait for the fate of all that was admitted; the next delta is the first of its stream."""
        self._stop_timer()
        self._backlog.end_stream()
        writing = self._writing is not None and not self._writing.done()
        if self._failure is None and (self._backlog or writing):
            barrier = Barrier(asyncio.get_running_loop().create_future())
            self._backlog.put(barrier)
            self._write()
            await barrier.done

    def _write(self) -> None:
        if self._backlog and (self._writing is None or self._writing.done()):
            self._writing = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        while self._failure is None and (due := self._backlog.due()):
            try:
                await self._append(due)
            except Exception as why:
                self._fail(due, why)
            else:
                self._release(due)

    async def _append(self, due: list[Admitted]) -> None:
        entries = [entry for entry in due if not isinstance(entry, Barrier)]
        if not entries:
            return
        answer = await self._writer.append([entry.event() for entry in entries])
        if answer.dropped:
            return
        for seq, entry in enumerate(entries, answer.first_seq):
            if isinstance(entry, Text):
                entry.stream.seqs.append(seq)

    def _release(self, written: list[Admitted]) -> None:
        self._backlog.release(written)
        for entry in written:
            _tell(entry, None)
        self._make_room()

    def _fail(self, due: list[Admitted], why: Exception) -> None:
        """Stop for good: who was in the failed write is told why, the others that it stopped."""
        self._failure = why
        self._stop_timer()
        for entry in due:
            _tell(entry, why)
        for entry in self._backlog.drop():
            _tell(entry, self._stopped(why))
        self._make_room()

    async def _make_way(self, cost: int, refuse: Callable[[], None]) -> None:
        """Wait for room, in the order of asking."""
        self._waiting += 1
        try:
            async with self._turnstile:
                while not self._backlog.fits(cost):
                    self._flush_text()
                    await self._room_made()
                    self._refuse_if_stopped()
                    refuse()
        finally:
            self._waiting -= 1

    async def _room_made(self) -> None:
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._room)

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    def _refuse_if_stopped(self) -> None:
        if self._failure is not None:
            raise self._stopped(self._failure) from self._failure

    def _stopped(self, first: Exception) -> RecorderStopped:
        return RecorderStopped(session_id=self.session_id, first=first)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _tell(entry: Admitted, failure: Exception | None) -> None:
    """Answer who waits for an entry; a barrier looks for itself."""
    if entry.done is None or entry.done.done():
        return
    if failure is None or isinstance(entry, Barrier):
        entry.done.set_result(None)
    else:
        entry.done.set_exception(failure)
