"""Compaction: by op and by itself, in one turn that is too large, and when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from changeover_shared._checkpoint import decode_checkpoint
from changeover_shared._errors import Invalid, LeaseExpired
from changeover_shared._events import (
    ContextCompacted,
    StepCompleted,
    TurnCompleted,
    TurnFailed,
    Warned,
)
from changeover_shared._items import AssistantMessage, Usage, UserMessage
from changeover_shared._ops import CompactOp, InterruptOp, SetModelOp
from changeover_shared._words import Ending, StepEnding
from changeover_worker import Agent, App, Compaction, Turn, tool
from changeover_worker._compaction import SUMMARISE
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse, TextDelta
from changeover_worker._session import commits, compacting, signals
from changeover_worker._session.signals import Moment
from changeover_worker._turn.context import flaw
from changeover_worker._turn.rewriting import SUMMARY
from changeover_worker.testing import ScriptedModel, call, fail, say
from tests.support.holding import Bench, bench, texts, until

SMALL = Compaction(at_tokens=400, keep_tokens=100)
SUMMARY_OF = "They talked."


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compacting, "PAUSE_S", 0.0)
    yield
    signals.listen(None)


@tool(effect="pure")
async def dig(size: int = 800) -> str:
    """Dig up text."""
    return "x" * size


@dataclass
class Split:
    """Answers questions of a turn from one model and requests for a summary from another."""

    turns: Any
    summaries: Any
    name: str = "split"
    asked: list[ModelRequest] = field(default_factory=list)
    summarised: list[ModelRequest] = field(default_factory=list)

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        is_summary = request.instructions == SUMMARISE
        (self.summarised if is_summary else self.asked).append(request)
        answer: ModelResponse
        if is_summary:
            answer = await self.summaries.respond(request, emit)
        else:
            assert flaw(request.items) == ""
            answer = await self.turns.respond(request, emit)
        return answer


class Held:
    """A summary that is waited for."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.go = asyncio.Event()
        self.cancelled = 0

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        await emit(TextDelta("They "))
        self.waiting.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return ModelResponse(AssistantMessage(text=SUMMARY_OF), Usage(output_tokens=3))


def talk(request: ModelRequest) -> Any:
    asked = getattr(request.items[-1], "text", "")
    return say("ok" if "in brief" in asked else "answer " + "y" * 400)


def summary(text: str = SUMMARY_OF) -> ScriptedModel:
    return ScriptedModel.always(say(text, usage=Usage(input_tokens=90, output_tokens=7)))


def app_of(model: Any, compaction: Compaction | None = SMALL, **models: Any) -> App:
    agent = Agent("bot", model="main", tools=[dig], compaction=compaction)
    return App(agents=[agent], models={"main": model, **models})


async def say_all(b: Bench, app: App, count: int, *, first: int = 1) -> None:
    for n in range(first, first + count):
        await b.submit(f"question {n} " + "z" * 100, f"m{n}")
        await b.run(app)


async def stored(b: Bench) -> Any:
    body = await b.stores.worker.read_checkpoint(b.session)
    assert body is not None
    return decode_checkpoint(body, session_id=b.session)


async def context_keys(b: Bench) -> list[str]:
    return [key for key in await b.stores.dump() if ":context:" in key]


def shown(request: ModelRequest) -> list[str]:
    return [getattr(item, "text", "") for item in request.items]


async def test_a_context_over_its_limit_begins_with_a_summary_from_then_on() -> None:
    model = Split(ScriptedModel.by(talk), summary())
    async with bench() as b:
        await say_all(b, app_of(model), 5)
        (compacted,) = [e for e in await b.events() if isinstance(e, ContextCompacted)]
        assert compacted.before_tokens > 400 > compacted.after_tokens
        assert compacted.usage == Usage(input_tokens=90, output_tokens=7)
        assert len(model.summarised) == 1
        request = model.asked[-1]
        assert shown(request)[0] == f"{SUMMARY}\n\n{SUMMARY_OF}"
        assert shown(request)[-1].startswith("question 5")
        assert await context_keys(b) == [f"{_session_key(b)}context:1"]
        assert (await b.transcript())[0].item == UserMessage(
            text="question 1 " + "z" * 100, submission_id="m1"
        )
        assert len(await b.transcript()) == 10
        assert not [e for e in texts(await b.events(), "delta") if "They talked" in e]
        (turn,) = [t for t in await b.turns() if t.turn_id == compacted.turn_id]
        assert turn.usage.input_tokens == 90
        stats = (await stored(b)).stats
        assert (stats.usage.output_tokens, stats.model_calls) == (7, 6)


def _session_key(b: Bench) -> str:
    return b.stores.worker.keys.of(b.session).session(b.session, "")


async def test_the_summary_is_asked_for_in_text_without_tools() -> None:
    model = Split(ScriptedModel.by(talk), summary())
    async with bench() as b:
        await say_all(b, app_of(model), 5)
        (request,) = model.summarised
        assert (request.tools, request.instructions) == ((), SUMMARISE)
        (document,) = shown(request)
        assert document.startswith("<conversation>\nuser: question 1 zzz")
        assert "\n\nassistant: answer yyy" in document
        assert document.endswith("</conversation>\n\nWrite the summary.")


async def test_each_compaction_removes_the_prefix_before() -> None:
    model = Split(ScriptedModel.by(talk), summary())
    async with bench() as b:
        for n in range(1, 13):
            before = await b.transcript()
            await say_all(b, app_of(model), 1, first=n)
            assert (await b.transcript())[: len(before)] == before
            assert len(await context_keys(b)) <= 1
        state = await stored(b)
        assert state.context_epoch > 2
        assert await context_keys(b) == [f"{_session_key(b)}context:{state.context_epoch}"]
        assert "They talked." in shown(model.summarised[-1])[0]


async def test_a_successor_is_shown_the_summary_too() -> None:
    model = Split(ScriptedModel.by(talk), summary())
    async with bench() as b:
        await say_all(b, app_of(model), 5)
        await b.submit("next", "next")
        await b.run(app_of(model), "w2:00000002")
        assert shown(model.asked[-1])[0].startswith(SUMMARY)
        assert shown(model.asked[-1])[1:-1] == [
            *shown(model.asked[-2])[1:],
            "answer " + "y" * 400,
        ]


async def test_one_turn_over_the_limit_is_compacted_inside_and_goes_on() -> None:
    script = ScriptedModel(*(call("dig") for _ in range(6)), say("Done."))
    model = Split(script, summary())
    async with bench() as b:
        await b.submit("dig for it", "m1")
        await b.run(app_of(model))
        assert await b.ending() is Ending.COMPLETED
        assert len(model.summarised) >= 2
        for request in model.asked[4:]:
            assert shown(request)[0].startswith(SUMMARY)
            assert shown(request)[1] == "dig for it"
        assert [e.item.type for e in await b.transcript()] == [
            "user",
            *["assistant", "tool_result"] * 6,
            "assistant",
        ]
        assert "assistant calls dig({})" in shown(model.summarised[0])[0]
        done = [e for e in await b.events() if isinstance(e, StepCompleted)]
        assert {e.ending for e in done} == {StepEnding.COMPLETED}


async def test_without_a_compaction_a_context_grows_as_it_does() -> None:
    model = Split(ScriptedModel.by(talk), summary())
    async with bench() as b:
        await say_all(b, app_of(model, None), 8)
        assert model.summarised == []
        assert len(model.asked[-1].items) == 15


@pytest.mark.parametrize(
    ("summaries", "times", "told"),
    [
        (lambda: ScriptedModel.always(fail("provider_server", retryable=True)), 3, "failed as"),
        (lambda: ScriptedModel.always(fail("provider_auth")), 1, "provider_auth"),
        (lambda: ScriptedModel.always(fail(retryable=True, retry_after="6s")), 1, "failed as"),
        (lambda: summary(" "), 1, "it is blank"),
        (lambda: summary("x" * 9000), 1, "it is larger than what it would replace"),
        (lambda: ScriptedModel.always(say("cut", stop="length")), 1, "it ended early: length"),
        (lambda: ScriptedModel.always(call("dig")), 1, "it is blank"),
    ],
)
async def test_a_failing_compaction_costs_a_warning_and_the_turn_goes_on(
    summaries: Callable[[], Any], times: int, told: str
) -> None:
    model = Split(ScriptedModel.by(talk), summaries())
    async with bench() as b:
        await say_all(b, app_of(model), 3)
        await b.submit("in brief: " + "z" * 200, "m4")
        await b.run(app_of(model))
        assert len(model.summarised) == times
        (warned,) = [e for e in await b.events() if isinstance(e, Warned)]
        assert warned.code == "compaction_failed"
        assert told in warned.text
        assert await b.ending("m4") is Ending.COMPLETED
        assert len(model.asked[-1].items) == 7
        state = await stored(b)
        assert (state.context_epoch, state.context_from) == (0, 1)
        assert await context_keys(b) == []
        await b.submit("hi", "m9")
        await b.run(app_of(model), "w2:00000002")
        assert len(model.summarised) == times


async def test_a_provider_that_says_nothing_to_a_summary_leaves_the_step_all_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hung summary and a hung step do not share the time that one grant may take."""
    model = Split(ScriptedModel.by(talk), Held())
    monkeypatch.setattr(commits, "SLACK_MS", 200)
    async with bench(step_timeout="1s", no_progress_timeout="1.9s") as b:
        await say_all(b, app_of(model, compaction=None), 3)
        asked = len(model.asked)
        await b.submit("in brief: " + "z" * 200, "m4")
        assert (await b.run(app_of(model))).how == "handed_off"
        assert (len(model.summarised), len(model.asked)) == (1, asked)
        await b.run(app_of(model), "w2:00000002")
        assert (len(model.summarised), len(model.asked)) == (1, asked + 1)
        assert await b.ending("m4") is Ending.COMPLETED


async def test_a_failed_compaction_is_tried_again_once_the_context_has_grown_by_a_tenth() -> None:
    model = Split(
        ScriptedModel(*(call("dig", size=130) for _ in range(25)), say("Done.")),
        ScriptedModel.always(fail("provider_auth")),
    )
    async with bench() as b:
        await b.submit("q" * 40, "m1")
        await b.run(app_of(model))
        tried = [len(shown(request)[0]) for request in model.summarised]
        assert 2 < len(tried) < 12
        assert all(b >= a * 1.05 for a, b in pairwise(tried))
        assert await b.ending() is Ending.COMPLETED


async def test_another_model_writes_the_summary_if_one_is_named() -> None:
    model = Split(ScriptedModel.by(talk), ScriptedModel())
    cheap = summary()
    how = Compaction(at_tokens=400, keep_tokens=100, model="cheap", instructions="Sum it up.")
    async with bench() as b:
        await say_all(b, app_of(model, how, cheap=cheap), 5)
        assert [request.instructions for request in cheap.requests] == ["Sum it up."]
        assert model.summarised == []
    with pytest.raises(Invalid, match="there is no model 'cheap' in this app"):
        app_of(model, how)


# As an op


async def test_a_compact_op_is_a_turn_of_its_own() -> None:
    model = Split(ScriptedModel.by(talk), summary())
    async with bench() as b:
        await say_all(b, app_of(model, Compaction(keep_tokens=150)), 3)
        await b.submit(CompactOp(), "c1")
        await b.run(app_of(model, Compaction(keep_tokens=150)))
        assert await b.ending("c1") is Ending.COMPLETED
        assert (await b.types())[-3:] == ["turn_started", "context_compacted", "turn_completed"]
        turn = (await b.turns())[-1]
        assert (turn.turn_id, turn.text, turn.usage.output_tokens) == ("t_4", "", 7)
        assert (turn.first_item, turn.last_item) == (7, 6)
        await say_all(b, app_of(model, None), 1, first=9)
        assert [text[:10] for text in shown(model.asked[-1])] == [
            SUMMARY[:10],
            "question 3",
            "answer yyy",
            "question 9",
        ]
        assert len(await b.transcript()) == 8


async def test_a_compact_op_with_nothing_to_replace_changes_nothing() -> None:
    model = Split(ScriptedModel.by(talk), summary())
    async with bench() as b:
        await say_all(b, app_of(model, None), 2)
        await b.submit(CompactOp(), "c1")
        await b.run(app_of(model, None))
        assert await b.ending("c1") is Ending.COMPLETED
        assert (await b.types())[-3:] == ["turn_started", "warning", "turn_completed"]
        assert model.summarised == []
        assert await context_keys(b) == []


async def test_a_failing_compact_op_fails_alone() -> None:
    model = Split(ScriptedModel.by(talk), ScriptedModel.always(fail(retryable=True)))
    app = app_of(model, Compaction(keep_tokens=10))
    async with bench() as b:
        await say_all(b, app, 3)
        before = await stored(b)
        await b.submit(CompactOp(), "c1")
        await b.run(app)
        assert await b.ending("c1") is Ending.FAILED
        (failed,) = [e for e in await b.events() if isinstance(e, TurnFailed)]
        assert failed.error.kind == "provider_server"
        after = await stored(b)
        kept = ("context_epoch", "context_from", "left_out", "model")
        assert [getattr(after, k) for k in kept] == [getattr(before, k) for k in kept]
        assert await context_keys(b) == []
        await say_all(b, app, 1, first=9)
        assert len(model.asked[-1].items) == 7


async def test_a_takeover_in_mid_compaction_asks_for_the_summary_again_and_for_nothing_else() -> (
    None
):
    held = Held()
    first, second = Split(ScriptedModel.by(talk), held), Split(ScriptedModel.by(talk), summary())
    async with bench() as b:
        await say_all(b, app_of(first, Compaction(keep_tokens=10)), 2)
        await b.submit(CompactOp(), "c1")
        run, lease = await b.begin(app_of(first, Compaction(keep_tokens=10)))
        await held.waiting.wait()
        await b.die(run, lease)
        await b.run(app_of(second, Compaction(keep_tokens=10)), "w2:00000002")
        assert (len(second.summarised), second.asked) == (1, [])
        assert await b.ending("c1") is Ending.COMPLETED
        assert (await b.turns())[-1].takeovers == 1
        assert (await b.types()).count("context_compacted") == 1


async def test_a_takeover_in_mid_compaction_of_an_open_step_asks_the_step_once() -> None:
    held = Held()
    first, second = Split(ScriptedModel.by(talk), held), Split(ScriptedModel.by(talk), summary())
    async with bench() as b:
        await say_all(b, app_of(first), 3)
        asked = len(first.asked)
        await b.submit("question 4 " + "z" * 300, "m4")
        run, lease = await b.begin(app_of(first))
        await until(held.waiting.is_set, "the summary was asked for")
        await b.die(run, lease)
        await b.run(app_of(second), "w2:00000002")
        assert len(first.asked) == asked
        assert (len(second.summarised), len(second.asked)) == (1, 1)
        assert await b.ending("m4") is Ending.COMPLETED


@pytest.mark.parametrize("op", [True, False])
async def test_an_interrupt_stops_a_compaction_at_once(op: bool) -> None:
    held = Held()
    model = Split(ScriptedModel.by(talk), held)
    app = app_of(model, Compaction(at_tokens=400, keep_tokens=100) if not op else None)
    async with bench() as b:
        await say_all(b, app, 3)
        if op:
            app = app_of(model, Compaction(keep_tokens=10))
        await b.submit(CompactOp() if op else "question 4 " + "z" * 300, "x1")
        run, lease = await b.begin(app)
        await until(held.waiting.is_set, "the summary was asked for")
        await b.submit(InterruptOp(reason="enough"), "i1")
        lease.alert(1)
        await run
        assert held.cancelled == 1
        assert await b.ending("x1") is Ending.ABORTED
        assert "context_compacted" not in await b.types()
        assert await context_keys(b) == []


@pytest.mark.parametrize("op", [True, False])
@pytest.mark.parametrize("how", ["drain", "drain_now"])
async def test_a_drain_leaves_a_compaction_to_the_next_worker(op: bool, how: str) -> None:
    held = Held()
    model = Split(ScriptedModel.by(talk), held)
    async with bench() as b:
        await say_all(b, app_of(model, None if op else SMALL), 3)
        app = app_of(model, Compaction(keep_tokens=10)) if op else app_of(model)
        await b.submit(CompactOp() if op else "question 4 " + "z" * 300, "x1")
        run, lease = await b.begin(app)
        await until(held.waiting.is_set, "the summary was asked for")
        getattr(lease, how)()
        assert (await run).how == "handed_off"
        assert held.cancelled == 1
        held.go.set()
        await b.run(app, "w2:00000002")
        assert await b.ending("x1") is Ending.COMPLETED
        assert (await b.types()).count("context_compacted") == 1


async def test_a_session_that_is_wanted_elsewhere_begins_no_compaction() -> None:
    model = Split(ScriptedModel.by(talk), summary())
    async with bench() as b:
        await say_all(b, app_of(model), 3)
        await b.submit("question 4 " + "z" * 300, "m4")

        async def listener(moment: Moment, session_id: str, detail: str) -> None:
            if moment is Moment.TURN_STARTED:
                lease.drain()
                await asyncio.sleep(0)

        signals.listen(listener)
        grant = await b.claim()
        lease = b.hold(grant)
        assert (await b.runner(app_of(model)).run(grant, lease)).how == "handed_off"
        assert model.summarised == []
        signals.listen(None)
        await b.run(app_of(model), "w2:00000002")
        assert len(model.summarised) == 1
        assert await b.ending("m4") is Ending.COMPLETED


async def test_a_lost_lease_stops_a_compaction_and_writes_nothing() -> None:
    held = Held()
    model = Split(ScriptedModel.by(talk), held)
    async with bench() as b:
        await say_all(b, app_of(model), 3)
        await b.submit("question 4 " + "z" * 300, "m4")
        run, lease = await b.begin(app_of(model))
        await until(held.waiting.is_set, "the summary was asked for")
        before = await b.stores.dump()
        lease.lose(LeaseExpired(session_id=b.session, fence=lease.lease.fence))
        assert (await run).how == "lost"
        assert held.cancelled == 1
        assert await b.stores.dump() == before


async def test_a_compaction_waits_for_its_place_among_other_ops() -> None:
    model = Split(ScriptedModel.by(talk), summary())
    app = app_of(model, Compaction(keep_tokens=10), other=ScriptedModel.by(talk))
    async with bench() as b:
        await b.submit("one " + "z" * 900, "m1")
        await b.submit(CompactOp(), "c1")
        await b.submit(SetModelOp(model="other"), "s1")
        await b.run(app)
        assert [t.submission_ids for t in await b.turns()] == [("m1",), ("c1",), ("s1",)]
        assert [await b.ending(i) for i in ("m1", "c1", "s1")] == [Ending.COMPLETED] * 3
        completed = [e for e in await b.events() if isinstance(e, TurnCompleted)]
        assert [e.submission_ids for e in completed] == [("m1",), ("c1",)]


async def test_a_session_of_a_handler_is_compacted_too() -> None:
    seen: list[int] = []
    app = App(models={"main": summary()})

    @app.handler("bot", model="main")
    async def bot(turn: Turn[None]) -> str:
        seen.append(len(turn.messages))
        return "answer " + "y" * 2000

    async with bench() as b:
        await say_all(b, app, 3)
        await b.submit(CompactOp(), "c1")
        await b.run(app)
        await say_all(b, app, 60, first=4)
        await b.submit(CompactOp(), "c2")
        await b.run(app)
        assert [await b.ending(id) for id in ("c1", "c2")] == [Ending.COMPLETED] * 2
        assert (await b.types()).count("context_compacted") == 1
        await say_all(b, app, 1, first=90)
        assert seen[:4] == [1, 3, 5, 7]
        assert seen[-1] < seen[-2]


# Damage


async def test_a_session_whose_summary_is_gone_goes_on_with_what_there_is() -> None:
    model = Split(ScriptedModel.by(talk), summary())
    async with bench() as b:
        await say_all(b, app_of(model), 5)
        (key,) = await context_keys(b)
        await b.stores.executor.command("DEL", key)
        await say_all(b, app_of(model), 1, first=6)
        assert await b.ending("m6") is Ending.COMPLETED
        assert "could not be read" in shown(model.asked[-1])[0]
        warned = [e.code for e in await b.events() if isinstance(e, Warned)]
        assert warned == ["context_damaged"]


async def test_a_session_whose_transcript_has_lost_a_result_goes_on_with_an_error_instead() -> None:
    script = ScriptedModel(call("dig"), say("Done."), say("More."), say("Again."))
    model = Split(script, summary())
    async with bench() as b:
        await say_all(b, app_of(model), 1)
        key = b.stores.worker.keys.of(b.session).session(b.session, "transcript")
        await b.stores.executor.command("XDEL", key, "3-0")
        await say_all(b, app_of(model), 1, first=2)
        assert await b.ending("m2") is Ending.COMPLETED
        lost = model.asked[-1].items[2]
        assert (lost.type, getattr(lost, "is_error", None)) == ("tool_result", True)
        warned = [e for e in await b.events() if isinstance(e, Warned)]
        assert [e.code for e in warned] == ["context_damaged"]
