"""A model that fails for a while: asked again, after a pause in the slot or after a park."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from changeover_shared._checkpoint import Checkpoint, decode_checkpoint
from changeover_shared._errors import LeaseExpired
from changeover_shared._events import StepCompleted, StepStarted, TurnFailed, TurnParked
from changeover_shared._items import AssistantMessage, Usage
from changeover_shared._ops import InterruptOp
from changeover_shared._results import shown_time
from changeover_shared._words import Ending, Status, StepEnding
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._models.model import (
    Emit,
    ModelError,
    ModelRequest,
    ModelResponse,
    ToolCallDelta,
    UsageDelta,
)
from changeover_worker._session import asking, signals
from changeover_worker._session.held import Held
from changeover_worker._session.runner import RunEnd
from changeover_worker._session.signals import Moment
from changeover_worker._turn import retry
from changeover_worker._turn.recovery import OnTakeover
from changeover_worker.testing import ScriptedModel, call, fail, say
from tests.support.holding import AheadClock, Bench, bench, texts, until

HOUR_MS = 3_600_000
CUT = fail("provider_stream", "model response stream was interrupted", retryable=True, after="Hel")
OTHER = "w:00000002"


def wanting(wait: str) -> Any:
    """The provider's answer when it wants to be left alone."""
    return fail("provider_rate_limit", "429", retryable=True, retry_after=wait)


def app_of(model: Any, **agent: Any) -> App:
    return App(agents=[Agent("bot", model="main", **agent)], models={"main": model})


def ends(events: tuple[Any, ...]) -> list[StepCompleted]:
    return [event for event in events if isinstance(event, StepCompleted)]


async def checkpoint_of(on: Bench) -> Checkpoint:
    body = await on.stores.worker.read_checkpoint(on.session)
    assert body is not None
    return decode_checkpoint(body, session_id=on.session)


async def status_of(on: Bench) -> Status:
    head = await on.stores.worker.read_head(on.session)
    assert head is not None
    return head.status


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    signals.listen(None)


@pytest.fixture
def held_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers wait out any pause, so that only what the test does can end it."""
    monkeypatch.setattr(retry, "HELD_PAUSE_MS", HOUR_MS)


@asynccontextmanager
async def in_backoff(
    model: Any, **agent: Any
) -> AsyncIterator[tuple[Bench, asyncio.Task[RunEnd], Held]]:
    """A session whose worker waits an hour between two attempts."""
    async with bench() as on:
        await on.submit("go")
        run, held = await on.begin(app_of(model, **agent))
        await until(lambda: bool(held._waiters), "the worker waits")
        async with asyncio.timeout(10):
            yield on, run, held


async def test_a_model_that_recovers_answers_and_only_its_answer_counts() -> None:
    async with bench() as on:
        await on.submit("go")
        model = ScriptedModel(CUT, CUT, say("Hello.", usage=Usage(output_tokens=2)))
        await on.run(app_of(model))
        events = await on.events()
        assert [end.ending for end in ends(events)] == [
            StepEnding.RETRYING, StepEnding.RETRYING, StepEnding.COMPLETED,
        ]  # fmt: skip
        assert [end.index for end in ends(events)] == [0, 0, 0]
        assert len({end.step_id for end in ends(events)}) == 3
        assert texts(events, "delta")[:2] == ["Hel", "Hel"]
        assert texts(events, "assistant_message") == ["Hello."]
        answer = (await on.transcript())[-1].item
        assert isinstance(answer, AssistantMessage) and answer.text == "Hello."
        (record,) = await on.turns()
        assert (record.steps, record.ending) == (1, Ending.COMPLETED)
        assert (await checkpoint_of(on)).stats.model_calls == 3


async def test_a_model_that_does_not_recover_is_asked_six_times_and_fails_its_turn() -> None:
    async with bench() as on:
        await on.submit("go")
        model = ScriptedModel.always(CUT)
        await on.run(app_of(model))
        events = await on.events()
        assert len(model.requests) == 6
        assert [end.ending for end in ends(events)] == [StepEnding.RETRYING] * 5 + [
            StepEnding.FAILED
        ]
        assert {end.index for end in ends(events)} == {0}
        assert len({end.step_id for end in ends(events)}) == 6
        assert [request.step_id for request in model.requests] == [
            end.step_id for end in ends(events)
        ]
        (failed,) = [event for event in events if isinstance(event, TurnFailed)]
        assert failed.error.retryable
        assert failed.error.message == "model response stream was interrupted"


async def test_the_next_step_has_all_its_attempts_again() -> None:
    async with bench(model_retries=1) as on:
        await on.submit("go")
        model = ScriptedModel(CUT, call("nothing"), CUT, say("done"))
        await on.run(app_of(model))
        assert await on.ending() is Ending.COMPLETED
        assert [end.index for end in ends(await on.events())] == [0, 0, 1, 1]


async def test_a_failed_attempt_costs_what_it_counted() -> None:
    class Counting:
        name = "counting"
        asked = 0

        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            self.asked += 1
            await emit(UsageDelta(Usage(input_tokens=10)))
            if self.asked < 3:
                raise ModelError(kind="provider_server", message="503", retryable=True)
            return ModelResponse(AssistantMessage(text="x"), Usage(input_tokens=7))

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(Counting()))
        (record,) = await on.turns()
        assert record.usage.input_tokens == 27


async def test_a_step_that_takes_too_long_is_asked_again() -> None:
    class Slow:
        name = "slow"
        asked = 0

        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            self.asked += 1
            if self.asked == 1:
                await asyncio.Event().wait()
            return ModelResponse(AssistantMessage(text="x"))

    async with bench(step_timeout="50ms") as on:
        await on.submit("go")
        await on.run(app_of(Slow()))
        assert [end.ending for end in ends(await on.events())] == [
            StepEnding.RETRYING, StepEnding.COMPLETED,
        ]  # fmt: skip


async def test_a_step_that_has_said_a_part_of_a_tool_call_is_not_asked_again() -> None:
    class Calling:
        name = "calling"
        asked = 0

        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            self.asked += 1
            await emit(ToolCallDelta("c1", "pay", '{"cents":'))
            raise ModelError(kind="provider_stream", message="cut", retryable=True)

    async with bench() as on:
        await on.submit("go")
        model = Calling()
        await on.run(app_of(model))
        assert (model.asked, await on.ending()) == (1, Ending.FAILED)
        assert [end.ending for end in ends(await on.events())] == [StepEnding.FAILED]


async def test_a_provider_that_wants_more_than_an_hour_fails_the_turn_and_its_wish_is_told() -> (
    None
):
    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(ScriptedModel(wanting("61m"))))
        (failed,) = [event for event in await on.events() if isinstance(event, TurnFailed)]
        assert (failed.error.retryable, failed.error.retry_after_ms) == (True, 61 * 60_000)


# Parked


async def test_a_provider_that_wants_to_be_left_alone_parks_the_session_and_frees_its_slot() -> (
    None
):
    async with bench() as on:
        await on.submit("go")
        parked: list[str] = []

        async def listener(reached: Moment, session_id: str, detail: str) -> None:
            if reached is Moment.PARKED:
                parked.append(detail)

        signals.listen(listener)
        before = on.stores.worker.clock.now_ms()
        end = await on.run(app_of(ScriptedModel(wanting("30s"))))
        assert (end.how, await status_of(on), parked) == ("released", Status.PARKED, ["retry"])
        event = (await on.events())[-1]
        assert isinstance(event, TurnParked) and event.until is not None
        assert event.until_ms is not None and before + 30_000 <= event.until_ms < before + 60_000
        (entry,) = [one for one in on.log.calls if one.args == ("session_parked",)]
        assert entry.kwargs == {
            "session": "s", "reason": "retry", "until": shown_time(event.until_ms),
        }  # fmt: skip
        snapshot = await on.stores.producer.snapshot(on.session)
        assert snapshot is not None
        (wait,) = snapshot.work.waits
        assert (wait.wait_id, wait.kind, wait.deadline_ms) == ("retry", "timer", event.until_ms)


@pytest.mark.parametrize("wish", ["resume", "abort"])
async def test_any_worker_goes_on_with_a_parked_turn_when_its_time_has_come(
    wish: OnTakeover,
) -> None:
    async with bench() as on:
        await on.submit("go")
        model = ScriptedModel(wanting("30s"), say("done"))
        app = app_of(model, on_takeover=wish)
        await on.run(app)
        assert await status_of(on) is Status.PARKED
        await on.pass_time(30_001)
        end = await on.run(app, OTHER)
        assert (end.how, await on.ending()) == ("released", Ending.COMPLETED)
        types = await on.types()
        assert types[types.index("turn_parked") :][:3] == [
            "turn_parked", "turn_resumed", "step_started",
        ]  # fmt: skip
        (record,) = await on.turns()
        assert record.takeovers == 0
        assert (await status_of(on), len(model.requests)) == (Status.IDLE, 2)


async def test_a_session_that_parks_again_and_again_is_never_quarantined() -> None:
    async with bench(model_retries=20) as on:
        await on.submit("go")
        model = ScriptedModel(*[wanting("30s")] * 12, say("done"))
        for round in range(12):
            await on.run(app_of(model), f"w:{round:08x}")
            assert await status_of(on) is Status.PARKED
            await on.pass_time(30_001)
        await on.run(app_of(model))
        assert await on.ending() is Ending.COMPLETED


async def test_a_holder_that_dies_when_the_wait_is_closed_has_its_successor_ask_again() -> None:
    async with bench() as on:
        await on.submit("go")
        model = ScriptedModel(wanting("30s"), say("done"))
        await on.run(app_of(model))
        await on.pass_time(30_001)
        there = asyncio.Event()

        async def listener(reached: Moment, session_id: str, detail: str) -> None:
            if reached is Moment.STEP_STARTED:
                there.set()
                await asyncio.Event().wait()

        signals.listen(listener)
        run, held = await on.begin(app_of(model), OTHER)
        await there.wait()
        await on.die(run, held)
        signals.listen(None)
        await on.run(app_of(model), "w:00000003")
        assert await on.ending() is Ending.COMPLETED
        assert [end.ending for end in ends(await on.events())] == [
            StepEnding.RETRYING, StepEnding.INTERRUPTED, StepEnding.COMPLETED,
        ]  # fmt: skip
        assert (await on.types()).count("turn_resumed") == 1


async def test_an_interrupt_of_a_parked_turn_aborts_it_without_asking_the_model() -> None:
    async with bench() as on:
        await on.submit("go")
        model = ScriptedModel(wanting("30s"))
        await on.run(app_of(model))
        await on.submit(InterruptOp(reason="enough"), "i1")
        assert await status_of(on) is Status.READY
        end = await on.run(app_of(model), OTHER)
        assert (end.how, await on.ending(), len(model.requests)) == ("released", Ending.ABORTED, 1)
        assert await on.ending("i1") is Ending.COMPLETED
        assert (await status_of(on), (await on.types())[-1]) == (Status.IDLE, "turn_aborted")


async def test_an_interrupt_that_came_just_before_the_park_aborts_at_once() -> None:
    async with bench() as on:
        await on.submit("go")

        async def listener(reached: Moment, session_id: str, detail: str) -> None:
            if reached is Moment.BEFORE_COMMIT and detail == "retry":
                await on.submit(InterruptOp(), "i1")

        signals.listen(listener)
        model = ScriptedModel(wanting("30s"))
        end = await on.run(app_of(model))
        assert (end.how, await on.ending(), len(model.requests)) == ("released", Ending.ABORTED, 1)


async def test_a_message_that_comes_while_its_session_is_parked_waits_for_its_turn() -> None:
    async with bench() as on:
        await on.submit("go")
        model = ScriptedModel(wanting("30s"), say("one"), say("two"))
        await on.run(app_of(model))
        await on.submit("and?", "m2")
        assert await status_of(on) is Status.PARKED
        await on.pass_time(30_001)
        await on.run(app_of(model))
        assert [record.text for record in await on.turns()] == ["one", "two"]


# Waiting in the slot


@pytest.mark.usefixtures("held_for_an_hour")
class TestPauseInTheSlot:
    async def test_an_interrupt_aborts_at_once(self) -> None:
        model = ScriptedModel(wanting("1h"))
        async with in_backoff(model) as (on, run, held):
            await on.submit(InterruptOp(reason="enough"), "i1")
            held.alert(1)
            assert (await run).how == "released"
            assert (await on.ending(), len(model.requests)) == (Ending.ABORTED, 1)

    async def test_a_lost_lease_ends_it_at_once(self) -> None:
        model = ScriptedModel(wanting("1h"))
        async with in_backoff(model) as (on, run, held):
            before = await on.types()
            held.lose(LeaseExpired(session_id="s", fence=1))
            end = await run
            assert (end.how, type(end.error)) == ("lost", LeaseExpired)
            assert await on.types() == before

    @pytest.mark.parametrize("drain", [Held.drain, Held.drain_now])
    async def test_any_drain_hands_off_at_once_and_the_next_holder_waits_the_rest(
        self, drain: Callable[[Held], None]
    ) -> None:
        model = ScriptedModel(wanting("1h"), say("done"))
        async with in_backoff(model) as (on, run, held):
            before = await on.stores.worker.read_checkpoint(on.session)
            drain(held)
            assert (await run).how == "handed_off"
            assert await on.stores.worker.read_checkpoint(on.session) == before
            next_run, next_held = await on.begin(app_of(model), OTHER)
            await until(lambda: bool(next_held._waiters), "the next worker waits as well")
            assert len(model.requests) == 1
            await on.die(next_run, next_held)
            await on.pass_time(HOUR_MS)
            await on.run(app_of(model), "w:00000003")
            assert (await on.ending(), len(model.requests)) == (Ending.COMPLETED, 2)
            (record,) = await on.turns()
            assert record.takeovers == 1

    @pytest.mark.parametrize("wish", ["resume", "abort"])
    async def test_a_holder_that_dies_in_it_loses_nothing(self, wish: OnTakeover) -> None:
        model = ScriptedModel(wanting("1h"), say("done"))
        async with in_backoff(model, on_takeover=wish) as (on, run, held):
            await on.die(run, held)
            await on.pass_time(HOUR_MS)
            await on.run(app_of(model, on_takeover=wish), OTHER)
            assert await on.ending() is Ending.COMPLETED
            (record,) = await on.turns()
            assert record.takeovers == 1
            started = [event for event in await on.events() if isinstance(event, StepStarted)]
            assert [event.index for event in started] == [0, 0]


async def test_a_park_gives_a_step_no_attempts_back() -> None:
    async with bench(model_retries=2) as on:
        await on.submit("go")
        model = ScriptedModel.always(wanting("30s"))
        for _ in range(2):
            await on.run(app_of(model))
            await on.pass_time(30_001)
        await on.run(app_of(model))
        assert (len(model.requests), await on.ending()) == (3, Ending.FAILED)


async def test_a_takeover_gives_a_step_no_attempts_back() -> None:
    """Between two attempts and in the middle of one."""
    async with bench(model_retries=2) as on:
        await on.submit("go")
        failed = 0
        head = on.stores.worker.keys.of(on.session).session(on.session, "head")
        stops = asyncio.Event()

        async def listener(reached: Moment, session_id: str, detail: str) -> None:
            if reached is Moment.AFTER_COMMIT and detail == "retry":
                stops.set()
                await asyncio.Event().wait()

        class Failing:
            name = "failing"

            async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
                nonlocal failed
                failed += 1
                raise ModelError(kind="provider_server", message="503", retryable=True)

        signals.listen(listener)
        for round in range(9):
            stops.clear()
            run, held = await on.begin(app_of(Failing()), f"w:{round:08x}")
            stopped = asyncio.create_task(stops.wait())
            await asyncio.wait({run, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if run.done():
                break
            await on.die(run, held)
            # Deaths alone would stop the session sooner; here it is about the attempts of the step.
            await on.stores.executor.command("HDEL", head, "attempts")
            await on.stores.worker.reap(on.partition, [on.session])
        assert (failed, await on.ending()) == (3, Ending.FAILED)


async def test_a_pause_ends_when_redis_sets_its_clock_back_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time that it waits for is far away then: nobody holds a slot so long."""
    monkeypatch.setattr(asking, "HELD_PAUSE_MS", 10)
    async with bench() as on:
        clock = on.stores.worker.clock
        assert isinstance(clock, AheadClock)

        async def set_back(moment: Moment, session: str, detail: str) -> None:
            if (moment, detail) == (Moment.AFTER_COMMIT, "retry"):
                clock.ahead_ms = -HOUR_MS

        await on.submit("hello")
        signals.listen(set_back)
        async with asyncio.timeout(10):
            await on.run(app_of(ScriptedModel(CUT, say("Hello."))))
        assert await on.ending() is Ending.COMPLETED
