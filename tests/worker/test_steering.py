"""Messages that steer a running turn: taken at a step boundary, or the next input, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from changeover_shared._events import StepStarted, SubmissionMerged, ToolCallEnd
from changeover_shared._items import StepRecord, UserMessage
from changeover_shared._ops import MessageOp
from changeover_worker import Agent, App, Turn
from changeover_worker._session import signals
from changeover_worker._session.signals import Moment
from changeover_worker._turn.context import flaw
from changeover_worker.testing import ScriptedModel, call, calls, fail, say
from tests.support.handling import Works
from tests.support.handling import app_of as handled_by
from tests.support.holding import Bench, bench, until, until_so
from tests.support.recovering import SECOND, Blocking, app_of, checkpoint_of, items_of

Step = Callable[[], Awaitable[Any]]


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    signals.listen(None)


def said(request: Any) -> list[str]:
    return [item.text for item in request.items if isinstance(item, UserMessage)]


async def turns_of(on: Bench) -> list[tuple[tuple[str, ...], str]]:
    return [(record.submission_ids, record.ending.value) for record in await on.turns()]


async def steered_in_the_tool(on: Bench, app: App, tool: Blocking, act: Step) -> None:
    """Run a session until its tool runs, do something, and let the tool and the turn end."""
    await on.submit("go")
    run, _ = await on.begin(app)
    await tool.started.wait()
    await act()
    tool.go.set()
    await run


def before(kind: str, act: Step) -> None:
    """Do something once, when a commit of a kind is about to be sent: what it takes is decided."""
    done = False

    async def listener(moment: Moment, session_id: str, detail: str) -> None:
        nonlocal done
        if moment is Moment.BEFORE_COMMIT and detail == kind and not done:
            done = True
            await act()

    signals.listen(listener)


async def test_steers_stand_behind_the_results_in_the_order_in_which_they_came() -> None:
    async with bench() as on:
        tool = Blocking("look")
        model = ScriptedModel(calls(call("look", call_id="c1")), say("ok"))

        async def act() -> None:
            await on.submit("s1", "s1", policy="steer")
            await on.submit("s2", "s2", policy="steer")

        await steered_in_the_tool(on, app_of(model, tool.tool), tool, act)
        assert [item.type for item in await items_of(on)] == [
            "user", "assistant", "tool_result", "user", "user", "assistant"
        ]  # fmt: skip
        assert (said(model.requests[1]), flaw(model.requests[1].items)) == (["go", "s1", "s2"], "")
        assert await turns_of(on) == [(("m1", "s1", "s2"), "completed")]


async def test_only_the_last_result_of_a_group_takes_steers() -> None:
    """Between the results of one answer there is no boundary."""
    async with bench() as on:
        tools = [Blocking("one"), Blocking("two")]
        model = ScriptedModel(calls(call("one"), call("two")), say("ok"))
        await on.submit("go")
        run, _ = await on.begin(app_of(model, *(tool.tool for tool in tools)))
        for tool in tools:
            await tool.started.wait()
        await on.submit("s1", "s1", policy="steer")
        tools[0].go.set()
        await until_so(lambda: has_ended(on, 1), "the first result is committed")
        assert "submission_merged" not in await on.types()
        tools[1].go.set()
        await run
        types = await on.types()
        at = types.index("submission_merged")
        assert (types[at - 1], types[at + 1]) == ("tool_call_end", "step_started")
        assert types[:at].count("tool_call_end") == 2


async def has_ended(on: Bench, calls: int) -> bool:
    return (await on.types()).count("tool_call_end") == calls


@pytest.mark.parametrize("kind", ["result", "recover", "retry"])
async def test_a_steer_that_is_taken_back_at_the_last_moment_costs_the_turn_nothing(
    kind: str,
) -> None:
    """Its commit was made to take it: that is refused, and what landed with it is kept."""
    async with bench(model_retries=1) as on:
        tool = Blocking("look")
        first = fail("overloaded", "later", retryable=True) if kind == "retry" else call("look")
        app = app_of(ScriptedModel.by(_once(first)), tool.tool)
        await on.submit("go")

        async def back() -> None:
            assert (await on.stores.producer.cancel("s", "s1")).word == "CANCELLED"

        run, held = await on.begin(app)
        if kind == "retry":
            await on.submit("s1", "s1", policy="steer")
            await on.submit("s2", "s2", policy="steer")
            before_reopening(back)
            await run
        else:
            await tool.started.wait()
            await on.submit("s1", "s1", policy="steer")
            await on.submit("s2", "s2", policy="steer")
            if kind == "recover":
                await on.die(run, held)
                before(kind, back)
                tool.go.set()
                await on.run(app, SECOND)
            else:
                before(kind, back)
                tool.go.set()
                await run
        assert await on.ending("s1") == "cancelled"
        assert (await on.ending(), await on.ending("s2")) == ("completed", "completed")
        assert tool.ran == (kind != "retry")
        ends = [event for event in await on.events() if isinstance(event, ToolCallEnd)]
        assert [end.unknown for end in ends] == {"result": [False], "recover": [True]}.get(kind, [])
        texts = [item.text for item in await items_of(on) if isinstance(item, UserMessage)]
        assert texts == ["go", "s2"]


async def test_what_was_left_at_one_boundary_is_taken_at_the_next() -> None:
    """After a commit that was to take what had gone, what waits is read again."""
    async with bench() as on:
        tool = Blocking("look")
        model = ScriptedModel(call("look"), call("look"), say("ok"))

        async def act() -> None:
            await on.submit("s1", "s1", policy="steer")
            await on.submit("s2", "s2", policy="steer")
            before("result", back)

        async def back() -> None:
            assert (await on.stores.producer.cancel("s", "s1")).word == "CANCELLED"

        await steered_in_the_tool(on, app_of(model, tool.tool), tool, act)
        assert await turns_of(on) == [(("m1", "s2"), "completed")]
        assert [said(request) for request in model.requests] == [["go"], ["go"], ["go", "s2"]]


def _once(first: Any) -> Any:
    asked: list[int] = []

    def answer(request: Any) -> Any:
        asked.append(1)
        return first if len(asked) == 1 else say("ok")

    return answer


def before_reopening(act: Step) -> None:
    """The second commit of a retry opens the step again."""
    seen = 0

    async def listener(moment: Moment, session_id: str, detail: str) -> None:
        nonlocal seen
        if moment is Moment.BEFORE_COMMIT and detail == "retry":
            seen += 1
            if seen == 2:
                await act()

    signals.listen(listener)


async def test_a_steer_may_change_the_model_and_the_metadata_from_the_next_step_on() -> None:
    async with bench() as on:
        tool = Blocking("look")
        main, other = ScriptedModel(call("look")), ScriptedModel(say("ok"))
        app = App(
            agents=[Agent("bot", model="main", tools=[tool.tool])],
            models={"main": main, "other": other},
        )

        async def act() -> None:
            op = MessageOp(text="s1", model="other", metadata={"n": 1})
            await on.submit(op, "s1", policy="steer")

        await steered_in_the_tool(on, app, tool, act)
        steps = [event.model for event in await on.events() if isinstance(event, StepStarted)]
        assert (steps, len(other.requests)) == (["main", "other"], 1)
        assert (await checkpoint_of(on)).metadata == {"n": 1}


async def test_a_steer_that_would_fail_by_itself_is_left_for_a_turn_of_its_own() -> None:
    """Nor does a later one overtake it."""
    async with bench() as on:
        tool = Blocking("look")
        model = ScriptedModel(call("look"), say("ok"), say("ok"))

        async def act() -> None:
            await on.submit("s1", "s1", policy="steer")
            await on.submit(MessageOp(text="s2", model="nowhere"), "s2", policy="steer")
            await on.submit("s3", "s3", policy="steer")

        await steered_in_the_tool(on, app_of(model, tool.tool), tool, act)
        assert await turns_of(on) == [
            (("m1", "s1"), "completed"),
            (("s2",), "failed"),
            (("s3",), "completed"),
        ]


async def test_a_turn_that_may_not_ask_again_takes_no_steer() -> None:
    """At its limit of steps it fails; the steer is the next turn."""
    async with bench(max_steps=1) as on:
        tool = Blocking("look")

        async def act() -> None:
            await on.submit("s1", "s1", policy="steer")

        model = ScriptedModel(call("look"), say("ok"))
        await steered_in_the_tool(on, app_of(model, tool.tool), tool, act)
        assert await turns_of(on) == [(("m1",), "failed"), (("s1",), "completed")]


async def test_what_steered_a_turn_ends_as_that_does() -> None:
    """By an interrupt, which it does not hold up."""
    async with bench() as on:
        tool = Blocking("look")
        model = ScriptedModel(call("look"), call("look"))
        app = app_of(model, tool.tool)

        async def act() -> None:
            await on.submit("s1", "s1", policy="steer")
            before("step", stop)

        async def stop() -> None:
            await on.interrupt()

        await steered_in_the_tool(on, app, tool, act)
        assert await turns_of(on) == [(("m1", "s1"), "aborted")]
        assert (await on.ending("s1"), await on.ending("i1")) == ("aborted", "completed")


async def test_a_takeover_that_aborts_folds_steers_in_as_well() -> None:
    async with bench() as on:
        tool = Blocking("look")
        fold = {"on_takeover": "abort", "on_abort_input": "fold"}
        app = app_of(ScriptedModel(call("look")), tool.tool, **fold)
        await on.submit("go")
        run, held = await on.begin(app)
        await tool.started.wait()
        await on.submit("s1", "s1", policy="steer")
        await on.die(run, held)
        await on.run(app, SECOND)
        assert await turns_of(on) == [(("m1", "s1"), "aborted")]


async def test_looking_for_steers_costs_one_read_at_a_boundary_and_none_elsewhere() -> None:
    async with bench() as on:
        looks = 0
        read = on.stores.worker.read_position

        async def counted(session_id: str) -> int:
            nonlocal looks
            looks += 1
            return await read(session_id)

        on.stores.worker.read_position = counted  # type: ignore[method-assign]
        one, two = Blocking("one"), Blocking("two")
        two.go.set()
        model = ScriptedModel(calls(call("one"), call("two")), call("two"), say("ok"))
        await on.submit("go")
        run, _ = await on.begin(app_of(model, one.tool, two.tool))
        await until_so(lambda: has_ended(on, 1), "the first result is committed")
        assert looks == 0
        one.go.set()
        await run
        assert (looks, len(model.requests)) == (2, 3)


# Handlers


async def test_a_handler_is_told_once_and_told_the_same_again() -> None:
    """Also when it asks first of all: what it was sent to answer stays what it was."""
    works = Works()
    heard: list[tuple[str, list[str], list[str]]] = []

    async def report(turn: Turn[None]) -> str:
        await turn.steering()
        await turn.step("work", works.hangs("work"), effect="pure")
        return "never"

    async def again(turn: Turn[None]) -> str:
        first = [message.text for message in await turn.steering()]
        await turn.step("work", works.gives("work"), effect="pure")
        later = [message.text for message in await turn.steering()]
        heard.append((turn.text, first, later))
        return "done"

    async with bench() as on:
        await on.submit("go")
        before("step", _submits(on, "late"))
        await on.submit("s1", "s1", policy="steer")
        run, held = await on.begin(handled_by(report))
        await until(lambda: works.ran["work"] > 0, "the step runs")
        await on.submit("s2", "s2", policy="steer")
        await on.die(run, held)
        await on.run(handled_by(again), SECOND)
        assert heard == [("go", ["s1"], ["late", "s2"])]
        assert await turns_of(on) == [(("m1", "s1", "late", "s2"), "completed")]
        merged = [e.submission_id for e in await on.events() if isinstance(e, SubmissionMerged)]
        assert merged == ["s1", "late", "s2"]


def _submits(on: Bench, id: str) -> Step:
    async def act() -> None:
        await on.submit(id, id, policy="steer")

    return act


async def test_what_a_handler_does_not_ask_for_is_the_next_turn() -> None:
    async with bench() as on:
        texts: list[str] = []

        async def report(turn: Turn[None]) -> str:
            texts.append(turn.text)
            if len(texts) == 1:
                await on.submit("s1", "s1", policy="steer")
                await on.submit("s2", "s2", policy="steer")
            return "done"

        await on.submit("go")
        await on.run(handled_by(report))
        assert texts == ["go", "s1", "s2"]
        assert await turns_of(on) == [((id,), "completed") for id in ("m1", "s1", "s2")]


async def test_nothing_that_steers_is_told_and_recorded_as_well() -> None:
    """So a handler that is run again does not hear something where it heard nothing."""
    works = Works()
    heard: list[list[str]] = []

    async def report(turn: Turn[None]) -> str:
        first = [message.text for message in await turn.steering()]
        step = works.gives("work") if works.ran["work"] else works.hangs("work")
        await turn.step("work", step, effect="pure")
        heard.append(first)
        return "done"

    async with bench() as on:
        await on.submit("go")
        run, held = await on.begin(handled_by(report))
        await until(lambda: works.ran["work"] > 0, "the step runs")
        await on.submit("s1", "s1", policy="steer")
        await on.die(run, held)
        await on.run(handled_by(report), SECOND)
        assert heard[0] == []
        assert await turns_of(on) == [(("m1",), "completed"), (("s1",), "completed")]
        records = [item for item in await items_of(on) if isinstance(item, StepRecord)]
        assert [(r.kind, r.output) for r in records][:1] == [("steering", [])]


async def test_a_handler_whose_steer_is_taken_back_meanwhile_is_run_again() -> None:
    async with bench() as on:
        heard: list[list[str]] = []

        async def report(turn: Turn[None]) -> str:
            heard.append([message.text for message in await turn.steering()])
            return "done"

        async def back() -> None:
            assert (await on.stores.producer.cancel("s", "s1")).word == "CANCELLED"

        await on.submit("go")
        await on.submit("s1", "s1", policy="steer")
        before("take", back)
        await on.run(handled_by(report))
        assert heard == [[]]
        assert await turns_of(on) == [(("m1",), "completed")]


async def test_a_handler_answers_all_that_was_joined() -> None:
    async with bench() as on:
        found: list[Any] = []

        async def report(turn: Turn[None]) -> str:
            found.append((turn.text, turn.message.text, [m.text for m in turn.inputs]))
            found.append([item.text for item in turn.messages if isinstance(item, UserMessage)])
            return "done"

        for id in ("a", "b"):
            await on.submit(id, id, policy="join")
        await on.run(handled_by(report))
        assert found == [("a\nb", "a", ["a", "b"]), ["a", "b"]]
        assert await turns_of(on) == [(("a", "b"), "completed")]
