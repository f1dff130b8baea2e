"""Recovery: what a successor makes of a turn whose worker died, case by case."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from changeover_shared._events import StepCompleted, ToolCallEnd, TurnAborted
from changeover_shared._items import AssistantMessage, ToolResult, UserMessage
from changeover_shared._ops import MessageOp
from changeover_shared._view import View
from changeover_shared._words import Ending, StepEnding
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse, TextDelta
from changeover_worker._session import signals
from changeover_worker._session.signals import Moment
from changeover_worker.testing import ScriptedModel, call, say
from tests.support.holding import Bench, bench
from tests.support.recovering import (
    SECOND,
    UNKNOWN,
    Blocking,
    app_of,
    checkpoint_of,
    die_at,
    die_in_the_tool,
    items_of,
    no_model,
    own_keys,
    revision_of,
)


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    signals.listen(None)


# Uncertain calls


async def test_a_takeover_that_aborts_answers_uncertain_calls_and_folds_what_waits() -> None:
    """Case 000-9: one commit answers the call with an error, ends the turn and takes what waits;
    the tool is not run again. Difference: the waiting message was told by its own event when it
    was accepted, so that event comes before the call's; the order in the transcript is the call's
    error and then the message.
    """
    async with bench() as on:
        blocking = Blocking("write_file")
        model = ScriptedModel(call("write_file", call_id="call-1"))
        await on.submit("go", "submission-1")
        wish = {"on_takeover": "abort", "on_abort_input": "fold"}
        await die_in_the_tool(
            on, app_of(model, blocking.tool, **wish), blocking, "queued after restart"
        )
        before = len(await on.events())
        silent = no_model()
        end = await on.run(app_of(silent, blocking.tool, **wish), SECOND)
        assert (end.how, end.turns, silent.requests, blocking.ran) == ("released", 1, [], 1)
        changed, ended, aborted = (await on.events())[before:]
        assert changed.type == "worker_changed"
        assert isinstance(ended, ToolCallEnd)
        assert (ended.turn_id, ended.call_id) == ("t_1", "call-1")
        assert (ended.is_error, ended.output) == (True, UNKNOWN)
        assert isinstance(aborted, TurnAborted)
        assert aborted.submission_ids == ("submission-1", "message-1")
        user, asked, result, folded = await items_of(on)
        assert isinstance(user, UserMessage) and isinstance(asked, AssistantMessage)
        assert isinstance(result, ToolResult) and result.is_error and result.call_id == "call-1"
        assert isinstance(folded, UserMessage)
        assert (folded.text, folded.submission_id) == ("queued after restart", "message-1")
        checkpoint = await checkpoint_of(on)
        assert checkpoint.execution is None
        assert (checkpoint.stats.turns, checkpoint.stats.aborted_turns) == (1, 1)
        (record,) = await on.turns()
        assert (record.ending, record.tool_calls, record.failed_tool_calls) == (
            Ending.ABORTED, 1, 1,
        )  # fmt: skip
        assert (record.first_item, record.last_item) == (1, 4)
        assert [await on.ending(i) for i in ("submission-1", "message-1")] == [Ending.ABORTED] * 2


async def test_what_was_folded_is_shown_to_the_model_with_the_next_message() -> None:
    async with bench() as on:
        blocking = Blocking("write_file")
        wish = {"on_takeover": "abort", "on_abort_input": "fold"}
        model = ScriptedModel(call("write_file", call_id="call-1"))
        await on.submit("go", "submission-1")
        await die_in_the_tool(on, app_of(model, blocking.tool, **wish), blocking, "and this")
        answering = ScriptedModel(say("both"))
        await on.run(app_of(answering, blocking.tool, **wish), SECOND)
        await on.submit("last", "m9")
        await on.run(app_of(answering, blocking.tool, **wish), SECOND)
        (request,) = answering.requests
        assert [i.text for i in request.items if isinstance(i, UserMessage)] == [
            "go", "and this", "last",
        ]  # fmt: skip


async def test_a_waiting_input_that_asks_for_more_is_the_next_turn() -> None:
    """Only what wants to be heard and nothing else is folded, and nothing behind the first other
    input: order stays."""
    async with bench() as on:
        blocking = Blocking("write_file")
        wish = {"on_takeover": "abort", "on_abort_input": "fold"}
        await on.submit("go", "submission-1")
        run, held = await on.begin(app_of(ScriptedModel(call("write_file")), blocking.tool, **wish))
        await blocking.started.wait()
        await on.submit("one", "message-1")
        await on.submit(MessageOp(text="two", metadata={"a": 1}), "message-2")
        await on.submit("three", "message-3")
        await on.die(run, held)
        model = ScriptedModel.always(say("ok"))
        await on.run(app_of(model, blocking.tool, **wish), SECOND)
        endings = [await on.ending(f"message-{n}") for n in (1, 2, 3)]
        assert endings == [Ending.ABORTED, Ending.COMPLETED, Ending.COMPLETED]


async def test_a_message_that_is_cancelled_while_it_is_folded_is_left_out() -> None:
    """The commit that names it is refused whole, and the next one is made without it."""
    async with bench() as on:
        blocking = Blocking("write_file")
        wish = {"on_takeover": "abort", "on_abort_input": "fold"}
        app = app_of(ScriptedModel(call("write_file")), blocking.tool, **wish)
        await on.submit("go")
        await die_in_the_tool(on, app, blocking, "taken back", "kept")
        tries = 0

        async def listener(moment: Moment, session_id: str, detail: str) -> None:
            nonlocal tries
            if moment is Moment.BEFORE_COMMIT and detail == "end":
                tries += 1
                if tries == 1:
                    await on.stores.producer.cancel(on.session, "message-1")

        signals.listen(listener)
        await on.run(app, SECOND)
        assert tries == 2
        endings = [await on.ending(id) for id in ("m1", "message-1", "message-2")]
        assert endings == [Ending.ABORTED, Ending.CANCELLED, Ending.ABORTED]
        texts = [i.text for i in await items_of(on) if isinstance(i, UserMessage)]
        assert texts == ["go", "kept"]
        assert (await checkpoint_of(on)).stats.turns == 1


async def test_what_waits_when_a_takeover_aborts_is_the_next_turn_unless_it_is_folded() -> None:
    """Case 000-9: by default the waiting message is answered after the abort. Difference: folding
    is a choice of the agent, so that people get their answer unless they do not want it.
    """
    async with bench() as on:
        blocking = Blocking("write_file")
        model = ScriptedModel(call("write_file", call_id="call-1"), say("here I am"))
        app = app_of(model, blocking.tool, on_takeover="abort")
        await on.submit("go", "submission-1")
        await die_in_the_tool(on, app, blocking, "queued after restart")
        await on.run(app, SECOND)
        assert blocking.ran == 1
        assert await on.ending("submission-1") is Ending.ABORTED
        assert await on.ending("message-1") is Ending.COMPLETED
        assert [r.ending for r in await on.turns()] == [Ending.ABORTED, Ending.COMPLETED]
        assert isinstance((await items_of(on))[2], ToolResult)


async def test_a_takeover_that_resumes_tells_the_model_of_the_uncertain_call_and_goes_on() -> None:
    """Case 000-9: with `resume` the call is answered with the same error and is not run again.
    Difference: with `resume`, the default, the turn goes on instead of being aborted.
    """
    async with bench() as on:
        blocking = Blocking("write_file")
        model = ScriptedModel(call("write_file", call_id="call-1"), say("I do not know"))
        app = app_of(model, blocking.tool)
        await on.submit("go", "submission-1")
        await die_in_the_tool(on, app, blocking)
        await on.run(app, SECOND)
        assert blocking.ran == 1
        result = model.requests[-1].items[-1]
        assert isinstance(result, ToolResult)
        assert (result.call_id, result.is_error, result.output) == ("call-1", True, UNKNOWN)
        (record,) = await on.turns()
        assert (record.ending, record.failed_tool_calls) == (Ending.COMPLETED, 1)


async def test_a_recovery_that_dies_before_its_commit_is_repeated_once_and_counted_once() -> None:
    """Case 000-9: a second death during the takeover changes nothing of it."""
    async with bench() as on:
        blocking = Blocking("write_file")
        wish = {"on_takeover": "abort", "on_abort_input": "fold"}
        app = app_of(ScriptedModel(call("write_file")), blocking.tool, **wish)
        await on.submit("go")
        await die_in_the_tool(on, app, blocking, "queued after restart")
        await die_at(on, app, Moment.BEFORE_COMMIT, "end")
        await on.run(app, SECOND)
        checkpoint = await checkpoint_of(on)
        assert (checkpoint.stats.turns, checkpoint.stats.aborted_turns) == (1, 1)
        assert len(await on.turns()) == 1
        assert (await on.types()).count("turn_aborted") == 1


# A model step in flight


async def test_a_takeover_that_aborts_closes_the_step_in_flight_in_the_commit_of_the_turn() -> None:
    """Case 000-10: the step ends as interrupted and the turn as aborted, in that order, in one
    commit that leaves neither open."""
    async with bench() as on:
        await on.submit("go")
        app = app_of(no_model(), on_takeover="abort")
        await die_at(on, app, Moment.STEP_STARTED)
        before = await checkpoint_of(on)
        assert before.execution is not None and before.execution.step is not None
        assert before.execution.model_calls == 1
        rev = await revision_of(on)
        seen = len(await on.events())
        await on.run(app, SECOND)
        changed, step, turn = (await on.events())[seen:]
        assert changed.type == "worker_changed"
        assert isinstance(step, StepCompleted) and isinstance(turn, TurnAborted)
        assert (step.step_id, step.ending) == (
            before.execution.step.step_id, StepEnding.INTERRUPTED,
        )  # fmt: skip
        assert (turn.turn_id, turn.reason) == ("t_1", "interrupted by restart")
        assert (await checkpoint_of(on)).execution is None
        assert await revision_of(on) == rev + 1


async def test_a_takeover_that_resumes_asks_again_under_the_same_index() -> None:
    """Case 000-10: with `resume` the step ends as interrupted all the same. Difference: with
    `resume`, the default, the model is asked again instead of the turn being aborted.
    """
    async with bench() as on:
        await on.submit("go")
        model = ScriptedModel(say("again"))
        await die_at(on, app_of(model), Moment.STEP_STARTED)
        await on.run(app_of(model), SECOND)
        ends = [e for e in await on.events() if isinstance(e, StepCompleted)]
        assert [(e.index, e.ending) for e in ends] == [
            (0, StepEnding.INTERRUPTED), (0, StepEnding.COMPLETED),
        ]  # fmt: skip
        assert await on.ending() is Ending.COMPLETED


class Spells:
    """Streams its pieces, then waits for ever."""

    name = "spells"

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self.streamed = asyncio.Event()

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        for piece in self.pieces:
            await emit(TextDelta(piece))
        self.streamed.set()
        await asyncio.Event().wait()
        raise AssertionError("never let go")


@pytest.mark.parametrize("pieces", [(), ("Hel",), ("Hel", "lo", " wor")])
@pytest.mark.parametrize("wish", ["abort", "resume"])
async def test_text_that_was_only_streamed_is_lost_with_its_worker_and_its_input_is_not(
    wish: Any, pieces: Sequence[str]
) -> None:
    """Case M1: what was streamed does not enter the conversation; the abort asks no model.
    Difference: the input stays in the transcript and its submission ends as aborted, so that it
    is told once and never lost; with `resume` it is answered.
    """
    async with bench() as on:
        await on.submit("hello")
        spells = Spells(*pieces)
        run, held = await on.begin(app_of(spells, on_takeover=wish))
        await spells.streamed.wait()
        await on.die(run, held)
        before = await own_keys(on)
        await start_and_look(on)
        assert await own_keys(on) == before
        model = no_model() if wish == "abort" else ScriptedModel(say("Hello to you"))
        await on.run(app_of(model, on_takeover=wish), SECOND)
        checkpoint = await checkpoint_of(on)
        assert checkpoint.execution is None
        said, *answers = await items_of(on)
        assert isinstance(said, UserMessage) and said.text == "hello"
        assert [getattr(a, "text", "") for a in answers] == (
            [] if wish == "abort" else ["Hello to you"]
        )
        view = View().apply_all(await on.events())
        assert (view.text, view.turn) == ("", None)
        assert len(model.requests) == (wish == "resume")


async def start_and_look(on: Bench) -> None:
    """What a worker and a client do before anything is claimed."""
    runner_app = app_of(no_model())
    on.runner(runner_app)
    producer, worker = on.stores.producer, on.stores.worker
    await worker.peek(on.partition, ["bot"], window=8)
    await producer.snapshot(on.session)
    await producer.catalogue(before=None, limit=10)
    await producer.journal(on.session)
    await producer.transcript_back(on.session, before=None, limit=10)


# Committed calls


async def test_the_message_with_its_calls_is_durable_before_a_tool_starts_and_survives() -> None:
    """Case M2: the successor has neither the tool nor an answer of the model, and needs neither.
    Difference: the open call is answered with an error in the recovery commit, so that the
    transcript has no call without its result: three items, not two.
    """
    async with bench() as on:
        blocking = Blocking("blocking_tool", "pure")
        model = ScriptedModel(call("blocking_tool", call_id="tool-1", value="hi"))
        await on.submit("hello")
        app = app_of(model, blocking.tool, on_takeover="abort")
        await die_in_the_tool(on, app, blocking)
        execution = (await checkpoint_of(on)).execution
        assert execution is not None and execution.assistant is not None
        assert [c.arguments for c in execution.calls] == ['{"value": "hi"}']
        silent = no_model()
        await on.run(app_of(silent, on_takeover="abort"), SECOND)
        user, asked, result = await items_of(on)
        assert isinstance(user, UserMessage) and user.text == "hello"
        assert isinstance(asked, AssistantMessage)
        (kept,) = asked.tool_calls
        assert (kept.call_id, kept.name) == ("tool-1", "blocking_tool")
        assert json.loads(kept.arguments) == {"value": "hi"}
        assert isinstance(result, ToolResult) and result.unknown
        assert (silent.requests, blocking.ran) == ([], 1)
        assert (await checkpoint_of(on)).execution is None


@pytest.mark.parametrize(("effect", "ran"), [("pure", 2), ("idempotent", 2), ("once", 1)])
async def test_a_resumed_turn_runs_a_call_again_only_if_it_may_be(effect: str, ran: int) -> None:
    """Case M2: with `resume` the committed message is kept too. Difference: with `resume`, the
    default, a call that may be repeated is run again instead of being left open.
    """
    async with bench() as on:
        blocking = Blocking("blocking_tool", effect)
        model = ScriptedModel(call("blocking_tool", call_id="tool-1"), say("done"))
        await on.submit("hello")
        app = app_of(model, blocking.tool)
        await die_in_the_tool(on, app, blocking)
        blocking.go.set()
        await on.run(app, SECOND)
        assert blocking.ran == ran
        result = (await items_of(on))[2]
        assert isinstance(result, ToolResult)
        assert result.output == ("done" if ran == 2 else UNKNOWN)
        assert len(model.requests) == 2
