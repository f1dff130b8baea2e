"""One session under one grant, on the real scripts: what it commits and what it leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from changeover_shared._errors import LeaseExpired
from changeover_shared._events import (
    Delta,
    Event,
    ModelChanged,
    StepCompleted,
    ToolCallEnd,
    TurnAborted,
    TurnFailed,
    Warned,
)
from changeover_shared._items import AssistantMessage, ToolResult, Usage
from changeover_shared._ops import CloseOp, InterruptOp, MessageOp, SetModelOp
from changeover_shared._words import Ending, GiveUp, Status, StepEnding
from changeover_worker import _stopping
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse, TextDelta
from changeover_worker._session import signals
from changeover_worker._session.signals import Moment
from changeover_worker._tools.context import ToolContext
from changeover_worker._tools.tool import tool
from changeover_worker.testing import ScriptedModel, call, calls, fail, say
from tests.support.holding import Bench, bench, texts, until, until_so


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    signals.listen(None)


class Gate:
    """A model that streams, then waits until it is let go."""

    name = "gate"

    def __init__(self, *pieces: str, answer: str = "whole") -> None:
        self.pieces = pieces
        self.answer = answer
        self.asked = 0
        self.waiting = asyncio.Event()
        self.go = asyncio.Event()
        self.emit: Emit | None = None
        self.cancelled = 0

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.asked += 1
        self.emit = emit
        for piece in self.pieces:
            await emit(TextDelta(piece))
        self.waiting.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return ModelResponse(AssistantMessage(text=self.answer), Usage(output_tokens=3))


def app_of(model: Any, *tools: Any, **agent: Any) -> App:
    return App(
        agents=[Agent("bot", model="main", tools=tools, **agent)],
        models={"main": model, "other": ScriptedModel.always(say("other"))},
    )


def stop_at(
    moment: Moment, then: Callable[[str], Awaitable[None]] | None = None
) -> tuple[asyncio.Event, asyncio.Event]:
    """Hold the session at a moment: (it is there, let it go on)."""
    there, go = asyncio.Event(), asyncio.Event()

    async def listener(reached: Moment, session_id: str, detail: str) -> None:
        if reached is moment and not there.is_set():
            there.set()
            if then is not None:
                await then(detail)
            else:
                await go.wait()

    signals.listen(listener)
    return there, go


def count_commits() -> list[str]:
    kinds: list[str] = []

    async def listener(reached: Moment, session_id: str, detail: str) -> None:
        if reached is Moment.AFTER_COMMIT:
            kinds.append(detail)

    signals.listen(listener)
    return kinds


def is_dense(events: tuple[Event, ...]) -> bool:
    """No gap but what completed steps say that they removed."""
    seqs = {event.seq for event in events}
    for event in events:
        if isinstance(event, StepCompleted):
            for first, last in event.removed:
                seqs.update(range(first, last + 1))
    return seqs == set(range(1, max(seqs) + 1))


async def has_delta(on: Bench) -> bool:
    return "delta" in await on.types()


async def status_of(on: Bench) -> Status:
    head = await on.stores.worker.read_head(on.session)
    assert head is not None
    return head.status


async def test_a_message_is_answered_in_two_commits_and_the_session_is_let_go() -> None:
    async with bench() as on:
        await on.submit("hello")
        kinds = count_commits()
        end = await on.run(app_of(ScriptedModel(say("hi"))))
        assert (end.how, end.turns, end.failed_turns) == ("released", 1, 0)
        assert kinds == ["start", "end"]
        assert await on.types() == [
            "message",
            "session_configured",
            "turn_started",
            "step_started",
            "delta",
            "assistant_message",
            "step_completed",
            "turn_completed",
        ]
        assert await on.ending() is Ending.COMPLETED
        assert await status_of(on) is Status.IDLE
        assert [entry.item.type for entry in await on.transcript()] == ["user", "assistant"]


async def test_what_waits_is_taken_in_order_one_turn_each() -> None:
    async with bench() as on:
        for k in (1, 2, 3):
            await on.submit(f"q{k}", f"m{k}")
        model = ScriptedModel.by(lambda request: say(f"a{len(request.items)}"))
        end = await on.run(app_of(model))
        assert (end.how, end.turns) == ("released", 3)
        assert texts(await on.events(), "turn_completed") == ["a1", "a3", "a5"]
        assert [record.submission_ids for record in await on.turns()] == [("m1",), ("m2",), ("m3",)]


async def test_a_message_that_arrives_during_the_turn_is_the_next_turn_of_the_same_grant() -> None:
    async with bench() as on:
        await on.submit("first")
        gate = Gate()
        run, _ = await on.begin(app_of(gate))
        await gate.waiting.wait()
        await on.submit("second", "m2")
        gate.go.set()
        assert (await run).turns == 2
        assert await on.ending("m2") is Ending.COMPLETED


async def test_a_later_grant_shows_the_model_the_whole_conversation() -> None:
    async with bench() as on:
        model = ScriptedModel(say("one"), say("two"))
        app = app_of(model)
        await on.submit("first")
        await on.run(app)
        await on.submit("second", "m2")
        await on.run(app, "w:00000002")
        shown = [getattr(item, "text", "") for item in model.requests[1].items]
        assert shown == ["first", "one", "second"]


async def test_calls_are_durable_before_any_tool_starts_and_results_as_they_land() -> None:
    landed: list[list[str]] = []
    slow_may_end = asyncio.Event()
    async with bench() as on:

        @tool
        async def quick() -> str:
            """Be quick."""
            landed.append(await on.types())
            return "q"

        @tool
        async def slow() -> str:
            """Be slow."""
            await slow_may_end.wait()
            return "s"

        await on.submit("go")
        kinds = count_commits()
        model = ScriptedModel(calls(call("slow"), call("quick")), say("done"))
        run, _ = await on.begin(app_of(model, quick, slow))
        await until(lambda: "result" in kinds, "the quick result is committed")
        assert landed[0][-2:] == ["tool_call_begin", "tool_call_begin"]
        assert len(await on.transcript()) == 1
        slow_may_end.set()
        assert (await run).how == "released"
        assert kinds == ["start", "step", "result", "result", "end"]
        items = [entry.item for entry in await on.transcript()]
        assert [item.type for item in items] == [
            "user",
            "assistant",
            "tool_result",
            "tool_result",
            "assistant",
        ]
        outputs = [item.output for item in items if isinstance(item, ToolResult)]
        assert outputs == ["s", "q"]


async def test_streamed_text_is_whole_in_the_journal_when_its_step_completes() -> None:
    async with bench() as on:
        await on.submit("go")
        gate = Gate("Hel", "lo", answer="Hello")
        run, _ = await on.begin(app_of(gate))
        await gate.waiting.wait()
        await until_so(lambda: has_delta(on), "a delta is in the journal")
        gate.go.set()
        await run
        events = await on.events()
        assert "".join(texts(events, "delta")) == "Hello"
        assert texts(events, "assistant_message") == ["Hello"]
        assert is_dense(events)


async def test_an_interrupt_stops_a_silent_model_and_keeps_what_it_has_said() -> None:
    async with bench() as on:
        await on.submit("go")
        gate = Gate("first", "pending")
        run, held = await on.begin(app_of(gate))
        await gate.waiting.wait()
        await on.submit(InterruptOp(reason="changed my mind"), "i1")
        held.alert(1)
        assert (await run).how == "released"
        events = await on.events()
        assert "".join(texts(events, "delta")) == "firstpending"
        assert [e.type for e in events][-2:] == ["step_completed", "turn_aborted"]
        ended = events[-1]
        assert isinstance(ended, TurnAborted) and ended.reason == "changed my mind"
        assert gate.cancelled == 1
        assert await on.ending() is Ending.ABORTED
        assert await on.ending("i1") is Ending.COMPLETED
        assert [entry.item.type for entry in await on.transcript()] == ["user"]
        assert is_dense(events)


async def test_text_that_comes_after_the_interrupt_is_refused() -> None:
    async with bench() as on:
        await on.submit("go")
        gate = Gate("first")
        run, held = await on.begin(app_of(gate))
        await gate.waiting.wait()
        await on.submit(InterruptOp(), "i1")
        held.alert(1)
        await run
        assert gate.emit is not None
        with pytest.raises(Exception, match="the step has ended"):
            await gate.emit(TextDelta("late"))
        assert "late" not in texts(await on.events(), "delta")


async def test_a_model_that_ignores_its_cancellation_is_left_behind_and_says_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_stopping, "CLEAN_UP_S", 0.01)

    class Stubborn(Gate):
        async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
            try:
                return await super().respond(request, emit)
            except asyncio.CancelledError:
                await self.go.wait()
                await emit(TextDelta("late"))
                raise

    async with bench() as on:
        await on.submit("go")
        model = Stubborn("first")
        run, held = await on.begin(app_of(model))
        await model.waiting.wait()
        await on.submit(InterruptOp(), "i1")
        held.alert(1)
        assert (await run).how == "released"
        before = await on.types()
        model.go.set()
        await until(lambda: not _stopping._left_behind, "the model has ended")
        assert await on.types() == before
        assert before[-1] == "turn_aborted"


async def test_an_interrupt_that_came_before_the_completion_wins() -> None:
    async with bench() as on:
        await on.submit("go")
        gate = Gate()
        run, _ = await on.begin(app_of(gate))
        await gate.waiting.wait()
        await on.submit(InterruptOp(), "i1")
        gate.go.set()
        await run
        assert await on.ending() is Ending.ABORTED
        stopped, _ = (await on.events())[-2:]
        assert isinstance(stopped, StepCompleted)
        assert (stopped.ending, stopped.usage.output_tokens) == (StepEnding.INTERRUPTED, 3)
        assert (await on.types())[-1] == "turn_aborted"
        assert [entry.item.type for entry in await on.transcript()] == ["user"]


async def test_a_streaming_worker_learns_of_an_interrupt_from_its_own_writes() -> None:
    async with bench() as on:
        await on.submit("go")
        again = asyncio.Event()

        class Talking(Gate):
            async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
                await emit(TextDelta("a"))
                self.waiting.set()
                await again.wait()
                await emit(TextDelta("b", "refusal"))
                return await super().respond(request, emit)

        model = Talking()
        run, held = await on.begin(app_of(model))
        await model.waiting.wait()
        await on.submit(InterruptOp(), "i1")
        again.set()
        await run
        assert await on.ending() is Ending.ABORTED
        assert held.ctl_epoch == 1


async def test_an_interrupt_stops_running_tools_and_the_next_message_runs() -> None:
    started = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    async with bench() as on:
        await on.submit("go")
        model = ScriptedModel(call("hang"), say("fine"))
        run, held = await on.begin(app_of(model, hang))
        await started.wait()
        await on.submit(InterruptOp(), "i1")
        await on.submit("next", "m2")
        held.alert(1)
        end = await run
        assert end.turns == 2
        assert [await on.ending(id) for id in ("m1", "m2")] == [Ending.ABORTED, Ending.COMPLETED]
        (result,) = [e.item for e in await on.transcript() if isinstance(e.item, ToolResult)]
        assert (result.output, result.unknown) == (
            "execution interrupted; result unknown: interrupted",
            True,
        )
        shown = model.requests[1].items
        assert [item.type for item in shown] == ["user", "assistant", "tool_result", "user"]


async def test_an_interrupt_that_waits_when_the_session_is_granted_is_settled_first() -> None:
    async with bench() as on:
        await on.submit("go")
        gate = Gate()
        app = app_of(gate)
        run, held = await on.begin(app)
        await gate.waiting.wait()
        await on.submit(InterruptOp(), "i1")
        await on.die(run, held)
        kinds = count_commits()
        end = await on.run(app, "w:00000002")
        assert (end.how, gate.asked, kinds) == ("released", 1, ["end"])
        assert await on.ending() is Ending.ABORTED


async def test_a_step_that_died_is_asked_again_and_its_text_does_not_count() -> None:
    async with bench() as on:
        await on.submit("go")
        gate = Gate("half")
        app = app_of(gate)
        run, held = await on.begin(app)
        await gate.waiting.wait()
        await until_so(lambda: has_delta(on), "a delta is in the journal")
        await on.die(run, held)
        gate.go.set()
        end = await on.run(app, "w:00000002")
        assert (end.how, gate.asked) == ("released", 2)
        events = await on.events()
        steps = [event for event in events if isinstance(event, StepCompleted)]
        assert [(s.index, s.ending) for s in steps] == [
            (0, StepEnding.INTERRUPTED),
            (0, StepEnding.COMPLETED),
        ]
        assert steps[0].step_id != steps[1].step_id
        (taken,) = [c.kwargs for c in on.log.calls if c.args == ("session_taken",)]
        assert (taken["step"], taken["unknown_tools"]) == (0, 0)
        dead = [e.text for e in events if isinstance(e, Delta) and e.step_id == steps[0].step_id]
        assert dead == ["half"]
        (record,) = await on.turns()
        assert (record.takeovers, record.steps, record.text) == (1, 1, "whole")
        assert is_dense(events)


@pytest.mark.parametrize(("effect", "runs"), [("once", 1), ("idempotent", 2), ("pure", 2)])
async def test_a_tool_that_may_have_run_is_run_again_only_if_it_says_so(
    effect: Any, runs: int
) -> None:
    keys: list[str] = []
    may_end = asyncio.Event()

    @tool(effect=effect)
    async def act(ctx: Any) -> str:
        """Act."""
        keys.append(ctx)
        await may_end.wait()
        return "acted"

    async with bench() as on:
        await on.submit("go")
        model = ScriptedModel.by(
            lambda request: (
                say("done") if isinstance(request.items[-1], ToolResult) else call("act", ctx="k")
            )
        )
        app = app_of(model, act)
        run, held = await on.begin(app)
        await until(lambda: bool(keys), "the tool has started")
        await on.die(run, held)
        may_end.set()
        assert (await on.run(app, "w:00000002")).how == "released"
        assert len(keys) == runs
        (ended,) = [event for event in await on.events() if isinstance(event, ToolCallEnd)]
        assert ended.unknown is (runs == 1)
        (taken,) = [c.kwargs for c in on.log.calls if c.args == ("session_taken",)]
        assert taken == {
            "session": "s",
            "fence": 2,
            "from": "w",
            "reason": "evicted",
            "turn": "t_1",
            "step": None,
            "unknown_tools": 2 - runs,
        }
        told = [c.kwargs for c in on.log.calls if c.args == ("tool_unknown",)]
        wanted = [{"session": "s", "call": ended.call_id, "tool": "act"}] if runs == 1 else []
        assert told == wanted
        assert await on.ending() is Ending.COMPLETED


async def test_a_result_that_was_committed_is_kept_by_the_next_worker() -> None:
    runs: list[str] = []
    may_end = asyncio.Event()

    @tool(effect="pure")
    async def first() -> str:
        """First."""
        runs.append("first")
        return "1"

    @tool(effect="pure")
    async def second() -> str:
        """Second."""
        runs.append("second")
        await may_end.wait()
        return "2"

    async with bench() as on:
        await on.submit("go")
        kinds = count_commits()
        model = ScriptedModel(calls(call("first"), call("second")), say("done"))
        app = app_of(model, first, second)
        run, held = await on.begin(app)
        await until(lambda: "result" in kinds, "the first result is committed")
        await on.die(run, held)
        may_end.set()
        await on.run(app, "w:00000002")
        assert runs == ["first", "second", "second"]
        assert await on.ending() is Ending.COMPLETED


async def test_an_agent_may_have_its_turns_aborted_by_a_takeover() -> None:
    async with bench() as on:
        await on.submit("go")
        gate = Gate("half")
        app = app_of(gate, on_takeover="abort")
        run, held = await on.begin(app)
        await gate.waiting.wait()
        await on.submit("next", "m2")
        await on.die(run, held)
        gate.go.set()
        await on.run(app, "w:00000002")
        aborted = [event for event in await on.events() if isinstance(event, TurnAborted)]
        assert [event.reason for event in aborted] == ["interrupted by restart"]
        assert [await on.ending(id) for id in ("m1", "m2")] == [Ending.ABORTED, Ending.COMPLETED]


async def test_a_drain_lets_the_running_step_end_and_then_hands_off() -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        started.set()
        await may_end.wait()
        return "worked"

    async with bench() as on:
        await on.submit("go")
        model = ScriptedModel(call("work"), say("done"))
        app = app_of(model, work)
        run, held = await on.begin(app)
        await started.wait()
        held.drain()
        may_end.set()
        assert (await run).how == "handed_off"
        assert len(model.requests) == 1
        assert await status_of(on) is Status.READY
        assert (await on.types())[-1] == "tool_call_end"
        end = await on.run(app, "w:00000002")
        assert end.how == "released"
        events = await on.events()
        interrupted = [
            e for e in events if isinstance(e, StepCompleted) and e.ending != "completed"
        ]
        assert interrupted == []
        assert await on.ending() is Ending.COMPLETED
        head = await on.stores.worker.read_head("s")
        assert head is not None and head.attempts == 0


async def test_a_drain_during_the_last_step_only_releases_and_leaves_the_rest_ready() -> None:
    async with bench() as on:
        await on.submit("go")
        gate = Gate()
        run, held = await on.begin(app_of(gate))
        await gate.waiting.wait()
        await on.submit("next", "m2")
        held.drain()
        gate.go.set()
        end = await run
        assert (end.how, end.turns) == ("released", 1)
        assert await status_of(on) is Status.READY
        assert await on.ending("m2") is None


async def test_an_urgent_drain_stops_the_step_and_hands_off_at_once() -> None:
    async with bench() as on:
        await on.submit("go")
        gate = Gate("half")
        run, held = await on.begin(app_of(gate))
        await gate.waiting.wait()
        held.drain_now()
        assert (await run).how == "handed_off"
        assert gate.cancelled == 1
        assert await status_of(on) is Status.READY
        assert "step_completed" not in await on.types()


async def test_an_urgent_drain_keeps_results_that_have_landed() -> None:
    started = asyncio.Event()

    @tool
    async def quick() -> str:
        """Be quick."""
        return "q"

    @tool(effect="pure")
    async def slow() -> str:
        """Be slow."""
        started.set()
        await asyncio.Event().wait()
        return "s"

    async with bench() as on:
        await on.submit("go")
        model = ScriptedModel(calls(call("quick"), call("slow")), say("done"))
        run, held = await on.begin(app_of(model, quick, slow))
        await started.wait()
        held.drain_now()
        assert (await run).how == "handed_off"
        (ended,) = [event for event in await on.events() if isinstance(event, ToolCallEnd)]
        assert ended.name == "quick"


async def test_a_lost_lease_stops_the_step_and_nothing_more_is_written() -> None:
    async with bench() as on:
        await on.submit("go")
        gate = Gate("half")
        run, held = await on.begin(app_of(gate))
        await gate.waiting.wait()
        await on.stores.worker.evict(held.lease.incarnation)
        await on.stores.worker.reap(on.partition, ["s"])
        await on.claim("w:00000002")
        before = await on.stores.dump()
        gate.go.set()
        end = await run
        assert end.how == "lost"
        assert "superseded" in str(end.error)
        assert await on.stores.dump() == before


async def test_a_keeper_that_no_longer_trusts_the_lease_stops_the_session_without_a_write() -> None:
    async with bench() as on:
        await on.submit("go")
        gate = Gate("half")
        run, held = await on.begin(app_of(gate))
        await gate.waiting.wait()
        await until(lambda: held.lost is None, "held")
        held.lose(LeaseExpired(session_id="s", fence=held.lease.fence))
        end = await run
        assert (end.how, gate.cancelled) == ("lost", 1)
        assert "step_completed" not in await on.types()
        assert await status_of(on) is Status.HELD


async def test_a_provider_that_fails_fails_its_turn_and_the_session_goes_on() -> None:
    async with bench() as on:
        await on.submit("go")
        await on.submit("again", "m2")
        model = ScriptedModel(fail("provider_auth", "401", after="so far"), say("fine"))
        end = await on.run(app_of(model))
        assert (end.turns, end.failed_turns) == (2, 1)
        (failed,) = [event for event in await on.events() if isinstance(event, TurnFailed)]
        assert (failed.error.kind, failed.error.message) == ("provider_auth", "401")
        assert [await on.ending(id) for id in ("m1", "m2")] == [Ending.FAILED, Ending.COMPLETED]
        assert texts(await on.events(), "delta") == ["so far", "fine"]


class Broken:
    """A model that breaks its own contract."""

    name = "broken"

    def __init__(self, wrong: Any) -> None:
        self.wrong = wrong

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        if isinstance(self.wrong, BaseException):
            raise self.wrong
        answer: ModelResponse = self.wrong
        return answer


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (KeyError("x"), "KeyError"),
        (SystemExit(3), "SystemExit"),
        (asyncio.CancelledError(), "cancelled from within"),
        ("no response", "returned a str"),
    ],
)
async def test_a_model_that_breaks_its_contract_fails_its_turn_and_the_worker_lives(
    wrong: Any, said: str
) -> None:
    async with bench() as on:
        await on.submit("go")
        assert (await on.run(app_of(Broken(wrong)))).how == "released"
        (failed,) = [event for event in await on.events() if isinstance(event, TurnFailed)]
        assert (failed.error.kind, said in failed.error.message) == ("model_crashed", True)


async def test_a_model_that_takes_too_long_fails_its_turn() -> None:
    async with bench(step_timeout="50ms", model_retries=0) as on:
        await on.submit("go")
        gate = Gate("half")
        await on.run(app_of(gate))
        (failed,) = [event for event in await on.events() if isinstance(event, TurnFailed)]
        assert (failed.error.kind, gate.cancelled) == ("provider_timeout", 1)


async def test_instructions_that_fail_fail_the_turn() -> None:
    def broken(turn: Any) -> str:
        raise LookupError(turn.session_id)

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(ScriptedModel(say("never")), instructions=broken))
        (failed,) = [event for event in await on.events() if isinstance(event, TurnFailed)]
        assert failed.error.kind == "instructions"


async def test_the_step_limit_ends_a_turn_that_never_stops_calling() -> None:
    @tool
    async def again() -> str:
        """Again."""
        return "again"

    async with bench(max_steps=3) as on:
        await on.submit("go")
        await on.run(app_of(ScriptedModel.by(lambda request: call("again")), again))
        (failed,) = [event for event in await on.events() if isinstance(event, TurnFailed)]
        assert failed.error.message == "turn reached the configured limit of 3 model steps"
        (record,) = await on.turns()
        assert (record.steps, record.tool_calls) == (3, 3)


async def test_set_model_is_one_commit_and_the_next_turn_asks_the_new_model() -> None:
    async with bench() as on:
        await on.submit(SetModelOp(model="other"), "c1")
        await on.submit("hello", "m1")
        kinds = count_commits()
        await on.run(app_of(ScriptedModel(say("main"))))
        assert kinds == ["start", "start", "end"]
        (changed,) = [event for event in await on.events() if isinstance(event, ModelChanged)]
        assert (changed.submission_id, changed.model) == ("c1", "other")
        assert await on.ending("c1") is Ending.COMPLETED
        assert texts(await on.events(), "turn_completed") == ["other"]


async def test_set_model_to_an_unknown_model_fails_and_changes_nothing() -> None:
    async with bench() as on:
        await on.submit(SetModelOp(model="nope"), "c1")
        await on.submit("hello", "m1")
        await on.run(app_of(ScriptedModel(say("main"))))
        assert await on.ending("c1") is Ending.FAILED
        assert texts(await on.events(), "turn_completed") == ["main"]


async def test_close_ends_the_session_and_cancels_what_waits() -> None:
    async with bench() as on:
        await on.submit(CloseOp(reason="bye"), "c1")
        await on.submit("too late", "m1")
        end = await on.run(app_of(ScriptedModel()))
        assert end.how == "closed"
        assert [await on.ending(id) for id in ("c1", "m1")] == [Ending.COMPLETED, Ending.CANCELLED]
        assert await status_of(on) is Status.CLOSED


async def test_a_model_that_left_the_app_gives_way_in_the_commit_that_starts_the_turn() -> None:
    async with bench() as on:
        await on.submit(MessageOp(text="hello", model="other"))
        await on.run(app_of(ScriptedModel()))
        await on.submit("again", "m2")
        kinds = count_commits()
        slim = App(
            agents=[Agent("bot", model="main")], models={"main": ScriptedModel(say("from main"))}
        )
        await on.run(slim, "w:00000002")
        assert kinds == ["start", "end"]
        changed = [event for event in await on.events() if isinstance(event, ModelChanged)]
        assert [(c.model, c.reason) for c in changed] == [
            ("other", "requested"),
            ("main", "unregistered"),
        ]
        assert texts(await on.events(), "turn_completed")[-1] == "from main"


async def test_an_agent_that_is_not_here_leaves_the_session_to_others() -> None:
    async with bench() as on:
        await on.submit("hello")
        strangers = App(agents=[Agent("else", model="m")], models={"m": ScriptedModel()})
        runner = on.runner(strangers)
        for _ in range(2):
            grant = await on.claim()
            assert (await runner.run(grant, on.hold(grant))).how == "unable"
            head = await on.stores.worker.read_head("s")
            assert head is not None and (head.rev, head.attempts) == (0, 0)
            await on.make_ready()
        # Those who follow are told once why nothing happens.
        message, warned = await on.events()
        assert (message.type, warned.type) == ("message", "warning")
        assert isinstance(warned, Warned) and warned.code == "no_agent"
        assert "the app of w has no agent 'bot'" in warned.text
        told = [c.kwargs["session"] for c in on.log.calls if c.args == ("warning",)]
        assert told == ["s", "s"]


@pytest.mark.parametrize("body", [b"{damaged", b'{"version":99,"session_id":"s"}'])
async def test_a_checkpoint_that_cannot_be_read_is_left_alone(body: bytes) -> None:
    async with bench() as on:
        await on.submit("hello")
        await on.run(app_of(ScriptedModel(say("hi"))))
        key = on.stores.worker.keys.of("s").session("s", "checkpoint")
        await on.stores.executor.command("XADD", key, "99-0", "body", body)
        await on.submit("again", "m2")
        before = await on.types()
        end = await on.run(app_of(ScriptedModel(say("never"))), "w:00000002")
        assert end.how == "unable"
        assert [t for t in await on.types() if t != "worker_changed"] == before


async def test_an_op_that_this_release_does_not_know_is_ended_as_failed() -> None:
    async with bench() as on:
        await on.submit("hello")
        key = on.stores.worker.keys.of("s").session("s", "inbox")
        ((entry, fields),) = await on.stores.executor.command("XRANGE", key, "-", "+")
        values = dict(zip(fields[::2], fields[1::2], strict=True))
        values[b"body"] = b'{"type":"levitate"}'
        await on.stores.executor.command("DEL", key)
        flat = [part for pair in values.items() for part in pair]
        await on.stores.executor.command("XADD", key, entry, *flat)
        assert (await on.run(app_of(ScriptedModel()))).how == "released"
        assert await on.ending() is Ending.FAILED


async def test_an_input_that_is_cancelled_before_it_is_taken_is_not_run() -> None:
    async with bench() as on:
        await on.submit("first")
        await on.submit("second", "m2")

        async def cancel(detail: str) -> None:
            await on.stores.producer.cancel("s", "m1")

        stop_at(Moment.BEFORE_COMMIT, cancel)
        model = ScriptedModel.by(lambda request: say(str(len(request.items))))
        end = await on.run(app_of(model))
        assert (end.how, end.turns) == ("released", 1)
        assert [await on.ending(id) for id in ("m1", "m2")] == [Ending.CANCELLED, Ending.COMPLETED]


async def test_when_all_inputs_are_cancelled_the_session_is_let_go() -> None:
    async with bench() as on:
        await on.submit("first")
        grant = await on.claim()
        await on.stores.producer.cancel("s", "m1")
        end = await on.runner(app_of(ScriptedModel())).run(grant, on.hold(grant))
        assert (end.how, end.turns) == ("released", 0)
        assert await status_of(on) is Status.IDLE


async def test_a_store_that_forgot_the_last_commit_is_read_again_under_the_same_lease() -> None:
    async with bench() as on:
        await on.submit("go")
        gate = Gate()
        run, _ = await on.begin(app_of(gate))
        await gate.waiting.wait()
        keys = on.stores.worker.keys.of("s")
        # As after a failover to a replica that missed the start commit.
        head = keys.session("s", "head")
        await on.stores.executor.command(
            "HSET", head, "rev", "0", "turn", "", "turns", "0", "commit_id", "", "transcript_n", "0"
        )
        work = keys.session("s", "work")
        held_by_turn = await on.stores.executor.command("HGET", work, "1")
        await on.stores.executor.command("HSET", work, "1", held_by_turn.replace(b"|t_1|", b"||"))
        for name in ("checkpoint", "transcript"):
            await on.stores.executor.command("DEL", keys.session("s", name))
        gate.go.set()
        end = await run
        assert (end.how, end.turns, gate.asked) == ("released", 1, 2)
        assert await on.ending() is Ending.COMPLETED


async def test_a_write_in_flight_is_brought_to_its_answer_when_its_run_is_cancelled() -> None:
    async with bench() as on:
        await on.submit("go")
        grant = await on.claim()
        held = on.hold(grant)
        app = app_of(ScriptedModel(say("hi")))
        run = asyncio.create_task(on.runner(app).run(grant, held))

        async def cancel_when_it_is_on_its_way(detail: str) -> None:
            asyncio.get_running_loop().call_soon(run.cancel)

        stop_at(Moment.BEFORE_COMMIT, cancel_when_it_is_on_its_way)
        await asyncio.wait({run})
        assert run.cancelled()
        assert await on.types() == ["message"]

        async def has_started() -> bool:
            return "turn_started" in await on.types()

        await until_so(has_started, "the start commit is durable")
        assert await on.stores.worker.give_up(held.lease, GiveUp.HAND_OFF)
        assert await status_of(on) is Status.READY


async def test_a_tool_sees_its_session_and_its_attempt() -> None:
    seen: list[ToolContext[Any]] = []

    @tool
    async def look(ctx: ToolContext[Any]) -> str:
        """Look."""
        seen.append(ctx)
        return "ok"

    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(ScriptedModel(call("look", call_id="c1"), say("done")), look))
        (ctx,) = seen
        assert (ctx.session_id, ctx.turn_id, ctx.call_id) == ("s", "t_1", "c1")
        assert (ctx.fence, ctx.attempt, ctx.idempotency_key) == (1, 1, "s/t_1/0/c1")


async def test_an_attempt_counts_the_runs_of_its_call_and_not_the_takeovers_of_its_turn() -> None:
    attempts: list[int] = []
    may_end = asyncio.Event()

    @tool(effect="pure")
    async def look(ctx: ToolContext[Any]) -> str:
        """Look."""
        attempts.append(ctx.attempt)
        await may_end.wait()
        return "ok"

    async with bench() as on:
        await on.submit("go")
        gate = Gate()
        run, held = await on.begin(app_of(gate))
        await gate.waiting.wait()
        await on.die(run, held)
        app = app_of(ScriptedModel(call("look"), say("done")), look)
        run, held = await on.begin(app, "w:00000002")
        await until(lambda: attempts == [1], "its first run is its first attempt")
        await on.die(run, held)
        may_end.set()
        await on.run(app, "w:00000003")
        assert attempts == [1, 2]
        assert [record.takeovers for record in await on.turns()] == [2]


async def test_a_turn_that_was_handed_off_has_not_been_taken_over() -> None:
    async with bench() as on:
        await on.submit("go")
        gate = Gate()
        app = app_of(gate)
        run, held = await on.begin(app)
        await gate.waiting.wait()
        held.drain_now()
        assert (await run).how == "handed_off"
        gate.go.set()
        await on.run(app, "w:00000002")
        assert gate.asked == 2
        assert [record.takeovers for record in await on.turns()] == [0]


async def test_a_session_in_a_row_of_turns_gives_way_when_others_wait() -> None:
    """Hole 47."""
    async with bench() as on:
        for k in range(20):
            await on.submit(f"q{k}", f"m{k}")
        other = next(
            f"o{i}"
            for i in range(100)
            if on.stores.worker.keys.of(f"o{i}").partition == on.partition
        )
        neighbour = Bench(on.stores, on.settings, other)
        await neighbour.submit("me too")
        end = await on.run(app_of(ScriptedModel.always(say("x"))))
        assert (end.how, end.turns) == ("released", 16)
        assert await status_of(on) is Status.READY


async def test_what_a_grant_is_too_small_to_carry_is_read_under_the_lease() -> None:
    async with bench() as on:
        note = {"note": "x" * 70_000}
        await on.submit(MessageOp(text="a" * 50_000, metadata=note))
        await on.submit("b" * 50_000, "m2")
        app = app_of(ScriptedModel.by(lambda request: say(str(len(request.items)))))
        assert (await on.run(app)).turns == 2
        await on.submit("third", "m3")
        grant = await on.claim("w:00000002")
        assert grant.checkpoint is None
        end = await on.runner(app).run(grant, on.hold(grant))
        assert (end.how, end.turns) == ("released", 1)
        assert texts(await on.events(), "turn_completed") == ["1", "3", "5"]
        assert b"xxx" in (await on.stores.worker.read_checkpoint("s") or b"")


async def test_a_step_that_no_commit_can_hold_fails_its_turn_and_the_session_goes_on() -> None:
    async with bench() as on:
        await on.submit("go")
        await on.submit("again", "m2")
        answers = iter(["x" * 17_000_000, "fine"])

        class Verbose(Gate):
            async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
                return ModelResponse(AssistantMessage(text=next(answers)))

        end = await on.run(app_of(Verbose()))
        assert (end.how, end.turns, end.failed_turns) == ("released", 2, 1)
        (failed,) = [event for event in await on.events() if isinstance(event, TurnFailed)]
        assert failed.error.kind == "too_big"
        assert [await on.ending(id) for id in ("m1", "m2")] == [Ending.FAILED, Ending.COMPLETED]


async def test_how_long_a_provider_asks_to_wait_is_data_of_the_failure() -> None:
    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(ScriptedModel(fail("provider_rate_limit", retry_after="1.5s"))))
        (failed,) = [event for event in await on.events() if isinstance(event, TurnFailed)]
        (record,) = await on.turns()
        for error in (failed.error, record.error):
            assert error is not None and error.retry_after_ms == 1500


async def test_each_ended_turn_is_one_log_event() -> None:
    async with bench() as on:
        await on.submit("go")
        await on.run(app_of(ScriptedModel(say("hi", usage=Usage(input_tokens=4)))))
        (logged,) = [c for c in on.log.calls if c.args == ("turn_ended",)]
        assert logged.method_name == "info"
        assert list(logged.kwargs) == [
            "session",
            "turn",
            "agent",
            "ending",
            "steps",
            "tools",
            "tokens",
            "ms",
        ]
        assert (logged.kwargs["ending"], logged.kwargs["tokens"]) == ("completed", 4)


async def test_a_mistake_in_the_runner_leaves_the_lease_to_run_out_so_that_it_counts() -> None:
    async with bench() as on:
        await on.submit("go")

        async def broken(detail: str) -> None:
            raise ZeroDivisionError

        stop_at(Moment.STEP_STARTED, broken)
        end = await on.run(app_of(ScriptedModel(say("never"))))
        assert (end.how, type(end.error)) == ("crashed", ZeroDivisionError)
        assert await status_of(on) is Status.HELD
        head = await on.stores.worker.read_head("s")
        assert head is not None and head.attempts == 1
