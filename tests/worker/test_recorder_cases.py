"""The recorder by its reference cases: durable first, in order, bounded, and joined by time."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from changeover_shared._checkpoint import Checkpoint
from changeover_shared._errors import Invalid, SessionDeleted, TooLarge
from changeover_shared._events import Delta, Event, StepCompleted, TurnAborted
from changeover_shared._items import AssistantMessage
from changeover_shared._ops import InterruptOp
from changeover_shared._store.records import Committed
from changeover_shared._words import CommitKind, GiveUp, Next, StepEnding
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._models.model import (
    Emit,
    EmitRefused,
    ModelRequest,
    ModelResponse,
    TextDelta,
)
from changeover_worker._session.backlog import CAPACITY, CAPACITY_BYTES
from changeover_worker._session.reader import READER_EVENTS
from changeover_worker._session.recorder import Recorder, RecorderFull, RecorderStopped
from changeover_worker._turn.draft import Draft
from tests.support.holding import Bench, bench, texts, until, until_so
from tests.support.recording import Recording, delta, note, recording

FRAME = len('{"text":""}')
"""What the journal's JSON of a delta has besides its text."""


def without_time(events: list[Event]) -> list[Event]:
    return [event.model_copy(update={"at_ms": 0}) for event in events]


def told(events: list[Event]) -> list[str]:
    return [getattr(event, "text", "") for event in events]


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def until_durable(it: Recording, count: int) -> None:
    async def so() -> bool:
        return len(await it.journal()) == count

    await until_so(so, f"{count} events are durable")


async def test_an_event_is_durable_before_its_reader_gets_it() -> None:
    """An event is written first, and read as it was written.

    Case 001-5: the journal's newest record is the event that the reader then gets, with its
    submission id. Difference: the reader's time is this process's estimate of the journal's.
    """
    async with recording() as it:
        it.store.gate.clear()
        recorded = asyncio.create_task(it.recorder.record(note("first")))
        await until(lambda: it.store.asked == 1, "the write was begun")
        await settle()
        assert not it.has_something()
        assert not recorded.done()
        it.store.gate.set()
        await recorded
        newest = (await it.on.events())[-1]
        assert (newest.submission_id, newest.type) == ("m1", "warning")
        assert without_time(await it.read(1)) == without_time([newest])


async def test_what_could_not_be_written_is_not_read_and_ends_the_recorder() -> None:
    """The record that failed says why, and the reader comes to the end.

    Case 001-6: recording for a session that is not there fails with the store's own error,
    nothing is delivered and the reader is at its end. Difference: the error is a `LeaseError`,
    here that the session was deleted.
    """
    async with recording() as it:
        await it.delete_session()
        before = await it.on.stores.dump()
        with pytest.raises(SessionDeleted):
            await it.recorder.record(note("never"))
        assert await it.reader.next() is None
        assert isinstance(it.held.lost, SessionDeleted)
        assert await it.on.stores.dump() == before


async def test_a_flush_waits_for_what_was_admitted_before() -> None:
    """What nobody waited for, and text that waits for more, is there after a flush.

    Case 001-7: after a record that nobody awaits and a flush, the journal has the event and the
    reader can take it at once.
    """
    async with recording() as it:
        it.recorder.try_record(note("one"))
        for text in ("first", "buf", "fered"):
            it.recorder.try_record(delta(text))
        await it.recorder.flush()
        assert await it.texts() == ["one", "first", "buffered"]
        for text in ("one", "first", "buffered"):
            assert it.has_something(), text


async def test_a_burst_is_taken_without_a_pause() -> None:
    """A caller that never lets the loop run can record more than the reader's queue holds.

    Case 001-8: 257 records in one go are all accepted; while somebody reads, a flush writes them
    all.
    """
    async with recording() as it:
        count = READER_EVENTS + 1
        assert count == 257
        for n in range(count):
            it.recorder.try_record(note(n))
        reading = asyncio.create_task(it.read(count))
        await it.recorder.flush()
        assert await it.texts() == [str(n) for n in range(count)]
        assert told(await reading) == [str(n) for n in range(count)]


@pytest.mark.parametrize("make", [note, lambda n: delta(chr(0x4E00 + n))])
async def test_the_513th_event_on_its_way_is_refused_and_the_others_are_kept(make: Any) -> None:
    """Too many at once is said at once; what was taken is written, and then there is room again.

    Case 001-9: without a pause exactly 512 are accepted and the next one is refused; all 512 are
    delivered, and a flush succeeds.
    """
    async with recording() as it:
        for n in range(512):
            it.recorder.try_record(make(n))
        for _ in range(2):
            with pytest.raises(RecorderFull, match="512 of 512 events"):
                it.recorder.try_record(note("too many"))
        reading = asyncio.create_task(it.read(513))
        await it.recorder.flush()
        written = "".join(getattr(make(n), "text", "") for n in range(512))
        assert "".join(await it.texts()) == written
        await it.recorder.record(note("room again"))
        it.reader.end()
        assert "".join(told(await reading)) == written + "room again"
    assert CAPACITY == 512


async def test_what_exceeds_8_mib_is_refused_and_what_was_taken_is_kept() -> None:
    """Serialised bytes are bounded, and a bound that is reached ends nothing.

    Case 001-10: of events whose text is a third of 8 388 608 bytes two are accepted and the
    third is refused; both are written. Difference: an event's JSON adds 11 bytes to its text, not
    39, since its ids lie beside it.
    """
    third = 2_796_202
    async with recording() as it:
        assert (8_388_608, third) == (CAPACITY_BYTES, CAPACITY_BYTES // 3)
        for letter in "ab":
            it.recorder.try_record(delta(letter * third))
        with pytest.raises(RecorderFull, match=f"{2 * (third + FRAME)} of 8388608 bytes"):
            it.recorder.try_record(delta("c" * third))
        await it.recorder.flush()
        assert await it.texts() == ["a" * third, "b" * third]
        it.recorder.try_record(delta("d"))
        await it.recorder.flush()


@pytest.mark.parametrize("letter", ["x", "界", '"'])
async def test_the_budget_is_exact_in_bytes_of_json_without_escapes(letter: str) -> None:
    """Cases 001-10: an event of exactly the budget fits, and one of a byte more never does."""
    size = {"x": 1, "界": 3, '"': 2}[letter]
    count, rest = divmod(CAPACITY_BYTES - FRAME, size)
    whole = letter * count + "x" * rest
    async with recording() as it:
        it.recorder.try_record(delta(whole))
        with pytest.raises(RecorderFull):
            it.recorder.try_record(delta(""))
        await it.recorder.flush()
        before = await it.on.stores.dump()
        with pytest.raises(TooLarge):
            it.recorder.try_record(delta(whole + "x"))
        with pytest.raises(TooLarge):
            await it.recorder.record(delta(whole + "x"))
        with pytest.raises(TooLarge):
            await it.step().emit(TextDelta(whole + "x"))
        await it.recorder.flush()
        assert await it.on.stores.dump() == before


@pytest.mark.parametrize("merged", [False, True])
async def test_the_budget_is_exact_in_the_sum_of_what_is_on_its_way(merged: bool) -> None:
    """Case 001-10: together they may be exactly 8 388 608 bytes, merged or not, and all of it is
    free again once they are written."""
    steps = ["s_1_0_a"] * 3 if merged else ["s_1_0_a", "s_1_0_b", "s_1_0_c"]
    sizes = [4_000_000, 10_000 - FRAME, CAPACITY_BYTES - 4_010_000 - 2 * FRAME]
    assert sum(sizes) + 3 * FRAME == 8_388_608
    async with recording() as it:
        for _ in range(2):
            for step, size in zip(steps[:2], sizes[:2], strict=True):
                it.recorder.try_record(delta("x" * size, step))
            with pytest.raises(RecorderFull):
                it.recorder.try_record(delta("x" * (sizes[2] + 1), steps[2]))
            it.recorder.try_record(delta("x" * sizes[2], steps[2]))
            with pytest.raises(RecorderFull):
                it.recorder.try_record(delta(""))
            await it.recorder.flush()
        assert len("".join(await it.texts())) == 2 * sum(sizes)


async def test_bytes_that_were_merged_are_free_again_once_they_are_written() -> None:
    """Case 001-10: a stream of small deltas uses none of the budget up."""
    async with recording() as it:
        for _ in range(2):
            for _ in range(100):
                it.recorder.try_record(delta("x"))
            await it.recorder.flush()
        it.recorder.try_record(delta("x" * (CAPACITY_BYTES - FRAME)))
        await it.recorder.flush()


async def test_who_awaits_a_record_waits_for_room_in_the_order_of_asking() -> None:
    third = CAPACITY_BYTES // 3
    async with recording() as it:
        it.store.gate.clear()
        recorder = it.recorder
        tasks = [asyncio.create_task(recorder.record(note(c * third))) for c in "abcd"]
        tasks.append(asyncio.create_task(recorder.record(note("e"))))
        await settle()
        assert not any(task.done() for task in tasks)
        with pytest.raises(RecorderFull):
            recorder.try_record(note("f" * third))
        it.store.gate.set()
        await asyncio.gather(*tasks)
        assert [text[0] for text in await it.texts()] == ["a", "b", "c", "d", "e"]


async def test_what_no_json_can_hold_is_refused_and_nothing_is_lost() -> None:
    async with recording() as it:
        it.recorder.try_record(note("before"))
        with pytest.raises(Invalid):
            it.recorder.try_record(note("\ud800"))
        with pytest.raises(Invalid):
            await it.recorder.record(delta("\ud800"))
        await it.recorder.record(note("after"))
        assert await it.texts() == ["before", "after"]


class Keeper:
    """A model that keeps its sink, and stays until it is let go."""

    name = "keeper"

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self.streamed = asyncio.Event()
        self.go = asyncio.Event()
        self.recorder: weakref.ref[Recorder] | None = None

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.emit = emit
        for piece in self.pieces:
            await emit(TextDelta(piece))
        (mine,) = (
            one
            for one in gc.get_objects()
            if type(one) is Recorder and one.session_id == request.session_id
        )
        self.recorder = weakref.ref(mine)
        del mine
        self.streamed.set()
        await self.go.wait()
        return ModelResponse(AssistantMessage(text="".join(self.pieces)))


async def has_delta(on: Bench) -> bool:
    return "delta" in await on.types()


_numbers = itertools.count()


@asynccontextmanager
async def own_bench() -> AsyncIterator[Bench]:
    """A bench whose session no other test has, with an input."""
    async with bench() as on:
        on.session = f"own:{next(_numbers)}"
        await on.submit("go")
        yield on


def app_of(model: Any) -> App:
    return App(agents=[Agent("bot", model="main")], models={"main": model})


async def test_a_sink_that_is_kept_is_closed_once_its_answer_is_there() -> None:
    """Text that comes after the turn belongs to nothing.

    Case 001-11: after the turn's end the kept callback is refused, and nothing changes.
    """
    async with own_bench() as on:
        model = Keeper("all of it")
        model.go.set()
        assert (await on.run(app_of(model))).how == "released"
        assert "turn_completed" in await on.types()
        before = await on.stores.dump()
        with pytest.raises(EmitRefused):
            await model.emit(TextDelta("late"))
        assert await on.stores.dump() == before


async def test_a_sink_that_is_kept_is_closed_while_its_session_goes_on() -> None:
    """Case 001-11: the callback of a finished turn says nothing in the next one."""
    kept: list[Emit] = []

    class Late:
        name = "late"

        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            kept.append(emit)
            for sink in kept[:-1]:
                with pytest.raises(EmitRefused):
                    await sink(TextDelta("late"))
            return ModelResponse(AssistantMessage(text=f"answer {len(kept)}"))

    async with own_bench() as on:
        await on.submit("again", "m2")
        assert (await on.run(app_of(Late()))).turns == 2
        assert texts(await on.events(), "turn_completed") == ["answer 1", "answer 2"]
        assert "late" not in "".join(texts(await on.events(), "delta"))


@pytest.mark.parametrize("how", ["cancelled", "lost", "drained"])
async def test_a_sink_that_is_kept_is_closed_when_its_session_is_let_go(how: str) -> None:
    """However a worker lets go of a session whose model is at work, the sink is closed.

    Case 001-12: a model is blocked, its worker goes, and the kept callback is refused.
    """
    async with own_bench() as on:
        model = Keeper("some")
        run, held = await on.begin(app_of(model))
        await model.streamed.wait()
        await until_so(partial(has_delta, on), "what it said is durable")
        match how:
            case "cancelled":
                run.cancel()
            case "lost":
                held.lose(SessionDeleted(session_id="s"))
            case "drained":
                held.drain_now()
        await asyncio.wait({run})
        before = await on.stores.dump()
        with pytest.raises(EmitRefused):
            await model.emit(TextDelta("late"))
        assert await on.stores.dump() == before


async def test_an_interrupt_keeps_what_was_said_before_it_and_refuses_what_comes_after() -> None:
    """The text that was admitted comes before the turn's end, in one commit with it.

    Case 001-13: `first` and `pending` are streamed, the turn is interrupted; the deltas before
    `turn_aborted` are `firstpending`, and `late` is refused.
    """
    async with own_bench() as on:
        model = Keeper("first", "pending")
        run, held = await on.begin(app_of(model))
        await model.streamed.wait()
        await on.submit(InterruptOp(), "i1", turn="t_1")
        held.alert(1)
        await run
        with pytest.raises(EmitRefused):
            await model.emit(TextDelta("late"))
        events = await on.events()
        (aborted,) = (i for i, event in enumerate(events) if isinstance(event, TurnAborted))
        assert "".join(texts(events[:aborted], "delta")) == "firstpending"
        assert texts(events[aborted:], "delta") == []
        (step,) = (event for event in events if isinstance(event, StepCompleted))
        assert step.ending is StepEnding.INTERRUPTED
        assert step.at_ms == events[aborted].at_ms


async def test_a_sink_keeps_no_recorder_alive() -> None:
    """Whoever keeps a model's callback keeps neither the recorder nor its session.

    Case 001-14: with the one strong reference gone the recorder is gone, and its sink refuses.
    """
    async with recording() as it:
        step = it.step()
        recorder = weakref.ref(it.recorder)
        del it.recorder
        gc.collect()
        assert recorder() is None
        with pytest.raises(EmitRefused):
            await step.emit(TextDelta("late"))


async def test_a_model_that_keeps_its_callback_keeps_no_session() -> None:
    """Case 001-14: after the run its recorder is gone, although the callback is still there."""
    async with own_bench() as on:
        model = Keeper("all of it")
        model.go.set()
        await on.run(app_of(model))
        gc.collect()
        assert model.recorder is not None
        assert model.recorder() is None
        with pytest.raises(EmitRefused):
            await model.emit(TextDelta("late"))


async def test_the_first_failure_is_told_by_the_flush_and_stays() -> None:
    """A failure that nobody awaited is told at the next barrier, and by every call after it.

    Case 001-15: for a session that is gone a record that nobody awaits is accepted; the flush
    fails as stopped, naming the first failure, and the reader is at its end. Difference: later
    records that nobody awaits are refused too, instead of vanishing.
    """
    async with recording() as it:
        await it.delete_session()
        before = await it.on.stores.dump()
        it.recorder.try_record(note("accepted"))
        with pytest.raises(RecorderStopped) as stopped:
            await it.recorder.flush()
        assert isinstance(stopped.value.first, SessionDeleted)
        assert str(stopped.value.first) in str(stopped.value)
        assert await it.reader.next() is None
        with pytest.raises(RecorderStopped):
            await it.recorder.record(note("second-hand"))
        with pytest.raises(RecorderStopped):
            it.recorder.try_record(note("second-hand"))
        with pytest.raises(RecorderStopped):
            await it.recorder.flush()
        assert await it.on.stores.dump() == before


async def test_the_failed_write_fails_as_it_is_and_what_waited_behind_it_second_hand() -> None:
    async with recording() as it:
        it.store.gate.clear()
        first = asyncio.create_task(it.recorder.record(note(1)))
        await until(lambda: it.store.asked == 1, "the write was begun")
        second = asyncio.create_task(it.recorder.record(note(2)))
        flush = asyncio.create_task(it.recorder.flush())
        await settle()
        await it.delete_session()
        it.store.gate.set()
        with pytest.raises(SessionDeleted):
            await first
        for task in (second, flush):
            with pytest.raises(RecorderStopped):
                await task


async def test_a_slow_reader_holds_a_flush_back_until_it_reads() -> None:
    """The reader's queue of 256 is the bound: what has no room there is not handed over.

    Case 001-16: 256 awaited records fill the queue; a flush over the 257th goes on only once one
    was read, and all come in order.
    """
    async with recording() as it:
        for n in range(256):
            await it.recorder.record(note(n))
        it.recorder.try_record(note(256))
        flush = asyncio.create_task(it.recorder.flush())
        await until_durable(it, 257)
        await settle()
        assert not flush.done()
        found = await it.read(1)
        await flush
        found += await it.read(256)
        assert told(found) == [str(n) for n in range(257)]
        first = found[0].seq
        assert [event.seq for event in found] == list(range(first, first + 257))


@pytest.mark.parametrize("go", ["leave", "hurry"])
async def test_a_reader_that_has_gone_stops_nothing(go: str) -> None:
    """Case 001-16: Difference: a reader that goes does not end the recorder, it is left alone."""
    async with recording() as it:
        for n in range(256):
            await it.recorder.record(note(n))
        record = asyncio.create_task(it.recorder.record(note(256)))
        await until_durable(it, 257)
        await settle()
        assert not record.done()
        getattr(it.reader, go)()
        await record
        await it.recorder.record(note(257))
        assert len(await it.journal()) == 258
        it.reader.end()
        left = 0 if go == "leave" else 258
        assert len(await it.read(300)) == left


@pytest.mark.parametrize("count", [2_000, 4 * CAPACITY])
async def test_a_fast_model_is_joined_into_fewer_events_without_losing_a_byte(count: int) -> None:
    """A burst costs few events, and the turn completes.

    Case 001-19: 2 048 deltas of one byte are fewer events, whose text is whole; the turn
    completes without an error.
    """

    class Burst:
        name = "burst"

        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            for _ in range(count):
                await emit(TextDelta("x"))
            return ModelResponse(AssistantMessage(text="x" * count))

    async with bench() as on:
        await on.submit("go")
        end = await on.run(app_of(Burst()))
        assert (end.how, end.turns, end.failed_turns) == ("released", 1, 0)
        events = await on.events()
        deltas = texts(events, "delta")
        assert len(deltas) < count // 10
        assert "".join(deltas) == "x" * count
        assert texts(events, "turn_completed") == ["x" * count]
        assert not {"warning", "turn_failed"} & {event.type for event in events}


async def test_text_is_joined_and_comes_before_whatever_follows_it() -> None:
    """The first delta of a stream goes out at once; each change of stream writes what waits.

    Case 001-20: after `first` the reader gets `secondthird`, `reason`, `next`, `last` and then
    the warning. Difference: the other phase is a refusal, since reasoning is not recorded.
    """
    async with recording() as it:
        record = it.recorder.record
        await record(delta("first"))
        assert told(await it.read(1)) == ["first"]
        await record(delta("second"))
        await record(delta("third"))
        assert not it.has_something()
        await record(delta("reason", phase="refusal"))
        assert told(await it.read(2)) == ["secondthird", "reason"]
        await record(delta("next", "s_1_1_b"))
        await record(delta("last", "s_1_1_b"))
        assert told(await it.read(1)) == ["next"]
        await record(note("warned"))
        assert told(await it.read(2)) == ["last", "warned"]
        await record(delta("first again", "s_1_1_b"))
        assert told(await it.read(1)) == ["first again"]


async def test_joined_text_stops_at_16_kib_and_no_delta_is_split() -> None:
    """Bytes of raw text count, and one delta above the limit goes by itself.

    Case 001-21: `first`, 5 461 times a character of three bytes, `next` and 16 385 times `x` are
    four events, unchanged and in order.
    """
    pieces = ["first", "界" * 5461, "next", "x" * 16_385]
    async with recording() as it:
        for piece in pieces:
            await it.recorder.record(delta(piece))
        assert await it.texts() == pieces
        it.reader.end()
        assert told(await it.read(9)) == pieces


@pytest.mark.parametrize(("more", "events"), [("x", 1), ("xx", 2)])
async def test_16_384_bytes_are_joined_and_one_more_is_not(more: str, events: int) -> None:
    """Case 001-21: joined text may be exactly 16 384 bytes."""
    async with recording() as it:
        await it.recorder.record(delta("first"))
        for piece in ("界" * 5461, more):
            await it.recorder.record(delta(piece))
        await it.recorder.flush()
        assert len(await it.texts()) == 1 + events


async def test_a_quiet_stream_is_written_by_the_timer_and_its_failure_told_by_the_flush() -> None:
    """Text waits 40 ms for more and no longer; to admit it promises nothing.

    Case 001-22: `first` comes at once and `quiet` by the timer; once the session is deleted a
    further delta is still accepted, the flush fails, and the reader is at its end.
    """
    async with recording() as it:
        await it.recorder.record(delta("first"))
        await it.recorder.record(delta("quiet"))
        assert told(await it.read(2)) == ["first", "quiet"]
        await it.delete_session()
        await it.recorder.record(delta("lost"))
        with pytest.raises(RecorderStopped):
            await it.recorder.flush()
        assert await it.reader.next() is None
        assert await it.texts() == ["first", "quiet"]


async def test_merging_does_not_put_the_timer_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 001-22: the 40 ms run from the first delta that waits, whatever is merged with it."""
    set_for: list[float] = []
    call_later = asyncio.get_running_loop().call_later

    def noted(delay: float, *call: Any, **options: Any) -> asyncio.TimerHandle:
        set_for.append(delay)
        return call_later(delay, *call, **options)

    async with recording() as it:
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", noted)
        for text in ("first", "a", "b", "c"):
            await it.recorder.record(delta(text))
        assert [delay for delay in set_for if delay < 1] == [0.040]
        assert told(await it.read(2)) == ["first", "abc"]


async def test_an_event_in_the_middle_of_a_step_keeps_its_place_before_the_commit() -> None:
    async with recording() as it:
        it.store.gate.clear()
        step = it.step()
        await step.emit(TextDelta("first"))
        await until(lambda: it.store.asked == 1, "the write was begun")
        await step.emit(TextDelta("second"))
        it.recorder.try_record(note("between"))
        for text in ("third", "fourth"):
            await step.emit(TextDelta(text))
        closing = asyncio.create_task(step.close())
        await settle()
        it.store.gate.set()
        tail = await closing
        assert await it.texts() == ["first", "second", "between"]
        assert told(list(tail.events)) == ["third", "fourth"]
        deltas = [event.seq for event in await it.journal() if isinstance(event, Delta)]
        assert list(tail.seqs) == deltas
        await it.recorder.flush()
        assert len(await it.journal()) == 3


async def test_what_a_step_takes_back_makes_room() -> None:
    async with recording() as it:
        step = it.step()
        for _ in range(CAPACITY):
            await step.emit(TextDelta("x"))
        tail = await step.close()
        assert "".join(told(list(tail.events))) == "x" * CAPACITY
        for n in range(CAPACITY):
            it.recorder.try_record(note(n))
        with pytest.raises(RecorderFull):
            it.recorder.try_record(note("too many"))
        it.reader.leave()
        await it.recorder.flush()
        assert await it.texts() == [str(n) for n in range(CAPACITY)]


async def test_a_commit_comes_after_the_text_that_was_there_before_it() -> None:
    """Hole 25."""
    async with recording() as it:
        await it.recorder.record(delta("first"))
        for text in ("buf", "fered"):
            it.recorder.try_record(delta(text))
        draft = Draft(
            CommitKind.START, "t_1", Checkpoint(session_id="s"), take=(1,), events=(note("commit"),)
        )
        commit = draft.to_commit(rev=0, max_step_ms=1000, next=Next.HOLD, quantum_left=True)
        assert isinstance(await it.recorder.commit(commit), Committed)
        assert await it.texts() == ["first", "buffered", "commit"]
        assert without_time(await it.read(3)) == without_time(list(await it.journal()))


async def test_a_session_is_given_up_after_the_text_that_was_there_before_it() -> None:
    """Hole 25."""
    async with recording() as it:
        await it.recorder.record(delta("first"))
        for text in ("buf", "fered"):
            it.recorder.try_record(delta(text))
        assert await it.recorder.give_up(GiveUp.HAND_OFF)
        assert (await it.texts())[:2] == ["first", "buffered"]


async def test_after_a_failure_a_commit_fails_as_it_did_and_writes_nothing() -> None:
    async with recording() as it:
        await it.delete_session()
        it.recorder.try_record(note("never"))
        before = await it.on.stores.dump()
        draft = Draft(CommitKind.START, "t_1", Checkpoint(session_id="s"), take=(1,))
        commit = draft.to_commit(rev=0, max_step_ms=1000, next=Next.HOLD, quantum_left=True)
        with pytest.raises(SessionDeleted):
            await it.recorder.commit(commit)
        with pytest.raises(SessionDeleted):
            await it.recorder.give_up(GiveUp.RELEASE)
        assert await it.on.stores.dump() == before


async def test_a_cancelled_record_is_written_all_the_same_and_fails_nobody() -> None:
    async with recording() as it:
        it.store.gate.clear()
        record = asyncio.create_task(it.recorder.record(note("gone")))
        await until(lambda: it.store.asked == 1, "the write was begun")
        record.cancel()
        await asyncio.wait({record})
        it.store.gate.set()
        await it.recorder.flush()
        assert await it.texts() == ["gone"]


async def test_deltas_above_the_journals_cap_are_not_told_and_the_rest_keeps_its_numbers() -> None:
    async with recording(journal_events=100) as it:
        for n in range(100):
            await it.recorder.record(note(n))
        for event in (delta("left out"), note("kept")):
            it.recorder.try_record(event)
        await it.recorder.flush()
        it.reader.end()
        found = await it.read(300)
        assert told(found)[100:] == ["kept"]
        assert without_time(found) == without_time(list(await it.journal()))
