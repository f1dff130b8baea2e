"""A held session's recorder with a reader, and a store whose writes can be held up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from changeover_shared._events import Delta, Event, Warned
from changeover_shared._items import Phase
from changeover_shared._store.records import Appended, Commit, CommitRefused, Committed, Lease
from changeover_shared._words import GiveUp
from changeover_worker._session.held import Held
from changeover_worker._session.reader import Reader
from changeover_worker._session.recorder import Recorder
from changeover_worker._session.step_recorder import StepRecorder
from changeover_worker._session.writer import LeasedWrites, Writer
from tests.support.holding import Bench, bench


class Gated:
    """The store, which nothing reaches while the gate is shut."""

    def __init__(self, store: LeasedWrites) -> None:
        self._store = store
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = 0

    async def append(self, lease: Lease, batch_no: int, events: Sequence[Event]) -> Appended:
        await self._pass()
        return await self._store.append(lease, batch_no, events)

    async def commit(self, lease: Lease, commit: Commit) -> Committed | CommitRefused:
        await self._pass()
        return await self._store.commit(lease, commit)

    async def give_up(self, lease: Lease, reason: GiveUp) -> bool:
        await self._pass()
        return await self._store.give_up(lease, reason)

    async def _pass(self) -> None:
        self.asked += 1
        await self.gate.wait()


@dataclass
class Recording:
    """A session that is held, with its recorder and somebody who reads along."""

    on: Bench
    held: Held
    store: Gated
    reader: Reader
    recorder: Recorder

    async def journal(self) -> tuple[Event, ...]:
        """What the recorder has written."""
        return tuple(event for event in await self.on.events() if event.type != "message")

    async def texts(self) -> list[str]:
        """The texts of what it has written."""
        return [getattr(event, "text", "") for event in await self.journal()]

    async def read(self, count: int) -> list[Event]:
        """The next events, as many as were asked for or as there are."""
        found: list[Event] = []
        while len(found) < count and (event := await self.reader.next()) is not None:
            found.append(event)
        return found

    def has_something(self) -> bool:
        """Whether an event is there to be read at once."""
        asking = self.reader.next()
        try:
            asking.send(None)
        except StopIteration as there:
            return there.value is not None
        asking.close()
        return False

    def step(self, step_id: str = "s_1_0_a") -> StepRecorder:
        """What a model step is given."""
        return StepRecorder(self.recorder, stamp(step_id))

    async def delete_session(self) -> None:
        """Let the session have been deleted by somebody else."""
        key = self.on.stores.worker.keys.of(self.on.session).session(self.on.session, "head")
        await self.on.stores.executor.command("HSET", key, "status", "deleted")


def stamp(step_id: str = "s_1_0_a") -> dict[str, Any]:
    """The ids of a model step."""
    return {"submission_id": "m1", "turn_id": "t_1", "step_id": step_id}


def delta(text: str, step_id: str = "s_1_0_a", phase: Phase = "final_answer") -> Delta:
    """A delta of a step."""
    return Delta(text=text, phase=phase, **stamp(step_id))


def note(text: object) -> Warned:
    """An event that is no delta."""
    return Warned(code="note", text=str(text), submission_id="m1")


@asynccontextmanager
async def recording(**settings: Any) -> AsyncIterator[Recording]:
    """A fresh store with a held session."""
    async with bench(**settings) as on:
        await on.submit("hello")
        grant = await on.claim()
        held = on.hold(grant)
        store = Gated(on.stores.worker)
        reader = Reader(
            on.stores.worker.clock.now_ms, fence=grant.lease.fence, epoch=grant.head.epoch
        )
        yield Recording(on, held, store, reader, Recorder(Writer(store, held, reader)))
