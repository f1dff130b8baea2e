"""The recorder: what a model streams reaches the journal in few writes, whole and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from changeover_shared._errors import LeaseGone, TooLarge
from changeover_shared._events import Delta
from changeover_shared._items import Phase, Usage
from changeover_worker._models.model import EmitRefused, ReasoningDelta, TextDelta, UsageDelta
from changeover_worker._session.backlog import CAPACITY, CAPACITY_BYTES
from changeover_worker._session.held import Held
from changeover_worker._session.recorder import Recorder
from changeover_worker._session.step_recorder import StepRecorder
from changeover_worker._session.writer import Writer
from tests.support.holding import Bench, bench, until_so

STAMP = {"submission_id": "m1", "turn_id": "t_1", "step_id": "s_1_0_a"}


@dataclass
class Streaming:
    on: Bench
    held: Held
    session: Recorder
    recorder: StepRecorder

    async def say(self, *pieces: str, phase: Phase = "final_answer") -> None:
        for piece in pieces:
            await self.recorder.emit(TextDelta(piece, phase))

    async def written(self) -> list[str]:
        return [event.text for event in await self.deltas()]

    async def deltas(self) -> list[Delta]:
        return [event for event in await self.on.events() if isinstance(event, Delta)]

    async def until_written(self, *pieces: str) -> None:
        await until_so(lambda: self._is_written(pieces), f"written: {len(pieces)} events")

    async def _is_written(self, pieces: tuple[str, ...]) -> bool:
        return await self.written() == list(pieces)


@asynccontextmanager
async def streaming() -> AsyncIterator[Streaming]:
    async with bench() as on:
        await on.submit("hello")
        grant = await on.claim()
        held = on.hold(grant)
        recorder = Recorder(Writer(on.stores.worker, held))
        yield Streaming(on, held, recorder, StepRecorder(recorder, STAMP))


async def test_the_first_piece_is_written_at_once_and_the_next_are_merged_by_the_timer() -> None:
    async with streaming() as it:
        await it.say("first")
        await it.until_written("first")
        await it.say("second", "third")
        assert await it.written() == ["first"]
        await it.until_written("first", "secondthird")
        tail = await it.recorder.close()
        assert tail.events == ()
        deltas = await it.deltas()
        assert tail.seqs == tuple(delta.seq for delta in deltas)
        assert (deltas[0].step_id, deltas[0].turn_id) == ("s_1_0_a", "t_1")


async def test_another_phase_is_another_stream_and_keeps_the_order() -> None:
    async with streaming() as it:
        await it.say("first")
        await it.until_written("first")
        await it.say("more")
        await it.say("why not", phase="refusal")
        await it.until_written("first", "more", "why not")


async def test_a_merge_ends_at_the_byte_limit_and_no_piece_is_split() -> None:
    async with streaming() as it:
        pieces = ("first", "界" * 5461, "next", "x" * 16_385)
        await it.say(pieces[0])
        await it.until_written(pieces[0])
        await it.say(*pieces[1:])
        await it.until_written(*pieces)


async def test_a_burst_is_few_events_and_loses_nothing() -> None:
    async with streaming() as it:
        await it.say(*["x"] * (4 * CAPACITY))
        tail = await it.recorder.close()
        texts = [*await it.written(), *(getattr(event, "text", "") for event in tail.events)]
        assert "".join(texts) == "x" * (4 * CAPACITY)
        assert len(texts) < CAPACITY


async def test_pieces_that_were_not_written_yet_come_back_with_the_end_of_the_step() -> None:
    async with streaming() as it:
        await it.say("first", "second")
        tail = await it.recorder.close()
        assert [getattr(event, "text", "") for event in tail.events] == ["first", "second"]
        assert await it.written() == []


async def test_text_after_the_end_of_the_step_is_refused() -> None:
    async with streaming() as it:
        await it.say("kept")
        await it.recorder.close()
        with pytest.raises(EmitRefused):
            await it.say("late")
        assert await it.written() == []


async def test_who_waits_for_room_is_refused_when_the_step_ends() -> None:
    async with streaming() as it:
        big = "x" * (CAPACITY_BYTES // 3)
        waiting = asyncio.create_task(it.say(big, big, big))
        await asyncio.sleep(0)
        await it.recorder.close()
        with pytest.raises(EmitRefused):
            await waiting


async def test_a_piece_that_could_never_be_written_is_refused_and_the_others_are_kept() -> None:
    async with streaming() as it:
        await it.say("kept")
        with pytest.raises(TooLarge):
            await it.say("x" * CAPACITY_BYTES)
        await it.until_written("kept")


async def test_two_thirds_of_the_budget_fit_and_the_third_waits_until_they_are_durable() -> None:
    async with streaming() as it:
        third = CAPACITY_BYTES // 3
        waiting = asyncio.create_task(it.say("a" * third, "b" * third, "c" * third))
        await asyncio.sleep(0)
        assert not waiting.done()
        await waiting
        assert [text[0] for text in await it.written()][:2] == ["a", "b"]


async def test_a_lost_lease_ends_the_recorder_and_tells_the_session() -> None:
    async with streaming() as it:
        await it.on.stores.worker.evict(it.held.lease.incarnation)
        await it.on.stores.worker.reap(it.on.partition, ["s"])
        before = await it.on.stores.dump()
        await it.say("never")
        await asyncio.sleep(0)
        with pytest.raises(LeaseGone):
            await it.recorder.close()
        assert isinstance(it.held.lost, LeaseGone)
        assert await it.on.stores.dump() == before


async def test_only_text_is_written() -> None:
    async with streaming() as it:
        await it.recorder.emit(ReasoningDelta("hm"))
        await it.recorder.emit(UsageDelta(Usage(output_tokens=4)))
        await it.say("")
        tail = await it.recorder.close()
        assert (tail.events, tail.seqs) == ((), ())
