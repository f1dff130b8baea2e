"""Tools that end their turn: the whole batch is run, the first of them in call order decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from changeover._answers import outcome_of
from changeover_shared._events import Event, ToolCallEnd, TurnAborted, TurnCompleted, TurnFailed
from changeover_shared._items import AssistantMessage, Json, ToolResult, UserMessage
from changeover_shared._ops import InterruptOp
from changeover_shared._words import Ending
from changeover_worker import StopTurn, ToolError
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._session import signals
from changeover_worker._session.signals import Moment
from changeover_worker._tools.tool import Tool, tool
from changeover_worker.testing import ScriptedModel, call, calls, say
from tests.support.holding import Bench, bench, texts, until_so


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    signals.listen(None)


TWO = calls(call("terminal_tool_0", call_id="tool-1"), call("terminal_tool_1", call_id="tool-2"))


def app_of(model: ScriptedModel, *tools: Tool[..., Any]) -> App:
    return App(agents=[Agent("bot", model="m", tools=tools)], models={"m": model})


def terminal(name: str, does: Callable[[], Json], *, ends: bool = True) -> Tool[..., Any]:
    async def act() -> Json:
        """Act."""
        return does()

    return tool(name=name, terminal=ends)(act)


def gives(value: Json) -> Callable[[], Json]:
    return lambda: value


def stops(kind: str, message: str) -> Callable[[], Json]:
    def stop() -> Json:
        raise StopTurn(kind, message)

    return stop


def breaks() -> Json:
    raise ToolError("it broke")


async def run(on: Bench, script: ScriptedModel, *tools: Tool[..., Any]) -> None:
    await on.submit("go")
    assert (await on.run(app_of(script, *tools))).how == "released"


async def ended(on: Bench) -> tuple[Event, ...]:
    """The events of the turn's results and of its end."""
    kinds = ToolCallEnd | TurnAborted | TurnCompleted | TurnFailed
    return tuple(event for event in await on.events() if isinstance(event, kinds))


async def assert_usable(on: Bench, tools: tuple[Tool[..., Any], ...] = ()) -> None:
    """The next message is answered, and the model is shown whole pairs."""
    model = ScriptedModel(say("still here"))
    await on.submit("next", "m-next")
    await on.run(app_of(model, *tools))
    assert await on.ending("m-next") is Ending.COMPLETED
    shown = model.requests[0].items
    for k, item in enumerate(shown):
        if isinstance(item, AssistantMessage):
            answers = shown[k + 1 : k + 1 + len(item.tool_calls)]
            assert [getattr(answer, "call_id", None) for answer in answers] == [
                one.call_id for one in item.tool_calls
            ]


async def test_the_first_terminal_result_in_call_order_ends_the_turn_whoever_lands_first() -> None:
    """Case 003-7: both calls are run, `first` is the output although `second` landed first, both
    results come before the end, and the model is not asked again."""
    may_end = asyncio.Event()

    @tool(terminal=True)
    async def terminal_tool_0() -> str:
        """Finish, late."""
        await may_end.wait()
        return "first"

    @tool(terminal=True)
    async def terminal_tool_1() -> str:
        """Finish."""
        return "second"

    async with bench() as on:
        model = ScriptedModel(TWO)
        await on.submit("go")
        run, _ = await on.begin(app_of(model, terminal_tool_0, terminal_tool_1))

        async def landed() -> bool:
            return "tool_call_end" in await on.types()

        await until_so(landed, "the second call has landed")
        may_end.set()
        assert (await run).how == "released"
        second, first, end = await ended(on)
        assert isinstance(first, ToolCallEnd) and isinstance(second, ToolCallEnd)
        assert (second.call_id, second.output) == ("tool-2", "second")
        assert (first.call_id, first.output) == ("tool-1", "first")
        assert isinstance(end, TurnCompleted)
        assert (end.text, end.output) == ("first", "first")
        (record,) = await on.turns()
        assert (record.ending, record.output, record.text) == (Ending.COMPLETED, "first", "first")
        (state,) = await on.stores.producer.submissions([("s", "m1")])
        assert state is not None
        assert outcome_of("s", state, record).output == "first"
        assert (record.tool_calls, record.failed_tool_calls, record.steps) == (2, 0, 1)
        assert len(model.requests) == 1
        results = [e.item for e in await on.transcript() if isinstance(e.item, ToolResult)]
        assert [(r.call_id, r.output) for r in results] == [
            ("tool-1", "first"),
            ("tool-2", "second"),
        ]
        await assert_usable(on)


async def test_a_tool_may_end_its_turn_as_failed() -> None:
    """Case 003-8: the turn fails with kind `terminal_control_failed` and message `failed`, once
    the batch is whole, with no completion or output; the session stays usable.
    Difference: the failure's kind is the tool's own word, there is no class beside it.
    """
    async with bench() as on:
        one = terminal("terminal_tool_0", stops("terminal_control_failed", "failed"))
        other = terminal("other", gives(1), ends=False)
        script = ScriptedModel(calls(call("terminal_tool_0", call_id="tool-1"), call("other")))
        await run(on, script, one, other)
        *results, end = await ended(on)
        assert len(results) == 2
        assert isinstance(end, TurnFailed)
        assert (end.error.kind, end.error.message) == ("terminal_control_failed", "failed")
        assert "turn_completed" not in await on.types()
        (record,) = await on.turns()
        assert (record.ending, record.output, record.error) == (Ending.FAILED, None, end.error)
        assert (record.tool_calls, record.failed_tool_calls) == (2, 1)
        stopped = next(e.item for e in await on.transcript() if isinstance(e.item, ToolResult))
        assert (stopped.output, stopped.is_error) == ("failed", True)
        assert len(script.requests) == 1
        await assert_usable(on)


@pytest.mark.parametrize(
    ("first", "second", "comes_to"),
    [
        (breaks, gives("second"), "second"),
        (gives("first"), breaks, "first"),
        (gives("first"), stops("halt", "stopped"), "first"),
        (stops("halt", "stopped"), gives("second"), "halt: stopped"),
        (stops("halt", "stopped"), stops("other", "later"), "halt: stopped"),
        (breaks, stops("halt", "stopped"), "halt: stopped"),
    ],
)
async def test_the_first_call_that_may_decide_does(
    first: Callable[[], Json], second: Callable[[], Json], comes_to: str
) -> None:
    async with bench() as on:
        tools = terminal("terminal_tool_0", first), terminal("terminal_tool_1", second)
        await run(on, ScriptedModel(TWO), *tools)
        *results, end = await ended(on)
        assert len(results) == 2
        if isinstance(end, TurnFailed):
            assert f"{end.error.kind}: {end.error.message}" == comes_to
        else:
            assert isinstance(end, TurnCompleted) and end.output == comes_to
        await assert_usable(on)


async def test_a_terminal_tool_that_fails_is_told_to_the_model() -> None:
    async with bench() as on:
        script = ScriptedModel(call("terminal_tool_0"), say("then not"))
        await run(on, script, terminal("terminal_tool_0", breaks))
        (record,) = await on.turns()
        assert (record.ending, record.text, record.output) == (Ending.COMPLETED, "then not", None)
        assert len(script.requests) == 2


async def test_a_tool_that_is_not_terminal_may_stop_the_turn() -> None:
    async with bench() as on:
        await run(on, ScriptedModel(call("f")), terminal("f", stops("halt", "no"), ends=False))
        assert await on.ending() is Ending.FAILED


async def test_an_output_that_is_no_text_leaves_the_text_to_what_was_said_beside_it() -> None:
    async with bench() as on:
        script = ScriptedModel(calls(call("terminal_tool_0"), text="Here you are."))
        await run(on, script, terminal("terminal_tool_0", gives({"cents": 7})))
        (record,) = await on.turns()
        assert (record.text, record.output) == ("Here you are.", {"cents": 7})
        (end,) = [event for event in await on.events() if isinstance(event, TurnCompleted)]
        assert (end.text, end.output) == ("Here you are.", {"cents": 7})
        said = UserMessage, AssistantMessage, ToolResult
        assert tuple(type(entry.item) for entry in await on.transcript()) == said


async def test_a_terminal_result_ends_the_turn_at_the_last_step_that_it_may_take() -> None:
    async with bench(max_steps=1) as on:
        await run(on, ScriptedModel(call("f")), terminal("f", gives("done")))
        assert await on.ending() is Ending.COMPLETED


async def test_an_interrupt_that_came_first_wins_over_a_terminal_result_which_is_kept() -> None:
    async with bench() as on:

        async def interrupts(moment: Moment, session_id: str, detail: str) -> None:
            if moment is Moment.TOOL_DONE:
                await on.submit(InterruptOp(reason="never mind"), "i1")

        signals.listen(interrupts)
        await run(on, ScriptedModel(call("f", call_id="c1")), terminal("f", gives("done")))
        result, end = await ended(on)
        assert isinstance(result, ToolCallEnd) and isinstance(end, TurnAborted)
        assert (result.output, result.unknown, end.reason) == ("done", False, "never mind")
        (record,) = await on.turns()
        assert (record.ending, record.output, record.tool_calls) == (Ending.ABORTED, None, 1)
        assert await on.ending("i1") is Ending.COMPLETED
        signals.listen(None)
        await assert_usable(on)


@pytest.mark.parametrize(
    ("does", "comes_to"),
    [(gives("first"), "first"), (stops("terminal_control_failed", "failed"), None)],
)
async def test_a_successor_without_the_tools_ends_the_turn_as_its_calls_have_decided(
    does: Callable[[], Json], comes_to: str | None
) -> None:
    started = asyncio.Event()

    @tool
    async def terminal_tool_1() -> str:
        """Never end."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    async with bench() as on:
        await on.submit("go")
        app = app_of(ScriptedModel(TWO), terminal("terminal_tool_0", does), terminal_tool_1)
        run, held = await on.begin(app)
        await started.wait()

        async def landed() -> bool:
            return "tool_call_end" in await on.types()

        await until_so(landed, "the first call has landed")
        await on.die(run, held)
        script = ScriptedModel()
        await on.run(app_of(script), "w:00000002")
        assert script.requests == []
        (record,) = await on.turns()
        if comes_to is None:
            assert record.error is not None
            assert (record.error.kind, record.error.message) == (
                "terminal_control_failed",
                "failed",
            )
        else:
            assert (record.ending, record.output) == (Ending.COMPLETED, comes_to)
        results = [event for event in await ended(on) if isinstance(event, ToolCallEnd)]
        assert [(r.call_id, r.unknown) for r in results] == [("tool-1", False), ("tool-2", True)]
        await assert_usable(on)


@pytest.mark.parametrize(("gave", "told"), [("all done", ["all done"]), ("", []), ({"a": 1}, [])])
async def test_a_text_that_ends_the_turn_is_told_like_any_answer(
    gave: Json, told: list[str]
) -> None:
    async with bench() as on:
        await on.submit("go")
        end = await on.run(app_of(ScriptedModel(call("act")), terminal("act", gives(gave))))
        assert (end.how, end.failed_turns) == ("released", 0)
        events = await on.events()
        assert texts(events, "delta") == texts(events, "assistant_message") == told
        assert texts(events, "turn_completed") == (told or [""])


class OwnStop(StopTurn):
    """A stop that was not made by its base."""

    def __init__(self) -> None:
        Exception.__init__(self, "the budget is spent")


class Silent(ToolError):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise ValueError("no words")


async def test_errors_that_do_not_hold_what_they_should_are_results_all_the_same() -> None:
    def own() -> Json:
        raise OwnStop

    def silent() -> Json:
        raise Silent("never read")

    async with bench() as on:
        await on.submit("go")
        tools = (terminal("terminal_tool_0", silent), terminal("terminal_tool_1", own))
        end = await on.run(app_of(ScriptedModel(TWO), *tools))
        assert (end.how, end.failed_turns) == ("released", 1)
        (record,) = await on.turns()
        assert record.error is not None
        told = (record.error.kind, record.error.message)
        assert told == ("stop_turn", "the budget is spent")
