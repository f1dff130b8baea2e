"""Tool calls of a session while they run: stopped, out of order, unknown, malformed, failing."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from itertools import permutations
from typing import Any

import pytest

from changeover_shared._errors import ToolError
from changeover_shared._events import ToolCallEnd
from changeover_shared._items import ToolResult
from changeover_shared._ops import InterruptOp
from changeover_shared._words import Ending
from changeover_worker import _stopping
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._models.scripted import ScriptedAnswer, ScriptedCall
from changeover_worker._session.held import Held
from changeover_worker._session.runner import RunEnd
from changeover_worker._tools.context import ToolContext, ToolStopped
from changeover_worker._tools.tool import Tool, tool
from changeover_worker.testing import ScriptedModel, call, calls, say
from tests.support.holding import Bench, bench, until, until_so


def app_of(model: ScriptedModel, *tools: Tool[..., Any]) -> App:
    return App(agents=[Agent("bot", model="m", tools=tools)], models={"m": model})


async def interrupt(on: Bench, held: Held, run: asyncio.Task[RunEnd]) -> None:
    """Interrupt the turn and see it end, with the open call as unknown."""
    await on.submit(InterruptOp(), "i1")
    held.alert(1)
    assert (await run).how == "released"
    assert await on.ending() is Ending.ABORTED
    (ended,) = [event for event in await on.events() if isinstance(event, ToolCallEnd)]
    assert ended.unknown


async def test_an_interrupt_cancels_a_call_that_sleeps() -> None:
    """Case 003-6: a call that would sleep for 10 s sees that it is cancelled, and the turn ends."""
    started, seen = asyncio.Event(), asyncio.Event()

    @tool
    async def sleepy(ctx: ToolContext[None]) -> str:
        """Sleep."""
        started.set()
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            with pytest.raises(ToolStopped):
                ctx.check()
            seen.set()
            raise
        return "rested"

    async with bench() as on:
        await on.submit("go")
        run, held = await on.begin(app_of(ScriptedModel(call("sleepy")), sleepy))
        await started.wait()
        await interrupt(on, held, run)
        assert seen.is_set()


async def test_an_interrupt_tells_a_call_in_a_thread_that_looks_for_it() -> None:
    """Case 003-6: the same for a `def` tool: it looks at `ctx.check()` and stops."""
    started, seen = threading.Event(), threading.Event()

    @tool
    def busy(ctx: ToolContext[None]) -> str:
        """Work on."""
        started.set()
        try:
            while True:
                ctx.check()
        except ToolStopped:
            seen.set()
            raise

    async with bench() as on:
        await on.submit("go")
        run, held = await on.begin(app_of(ScriptedModel(call("busy")), busy))
        await until(started.is_set, "the tool has started")
        await interrupt(on, held, run)
        await until(seen.is_set, "the tool has stopped")


async def test_a_turn_does_not_wait_for_a_thread_that_does_not_look() -> None:
    started, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    @tool
    def deaf() -> str:
        """Hear nothing."""
        started.set()
        may_end.wait()
        ended.set()
        return "too late"

    async with bench() as on:
        await on.submit("go")
        run, held = await on.begin(app_of(ScriptedModel(call("deaf")), deaf))
        await until(started.is_set, "the tool has started")
        await interrupt(on, held, run)
        assert not ended.is_set()
        before = await on.stores.dump()
        may_end.set()
        await until(ended.is_set, "the tool has ended")
        assert await on.stores.dump() == before


async def test_a_turn_does_not_wait_for_a_call_that_refuses_to_be_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_stopping, "CLEAN_UP_S", 0.01)
    started, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Go on."""
        started.set()
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return "too late"

    async with bench() as on:
        await on.submit("go")
        run, held = await on.begin(app_of(ScriptedModel(call("stubborn")), stubborn))
        await started.wait()
        await interrupt(on, held, run)
        assert not ended.is_set()
        before = await on.stores.dump()
        may_end.set()
        await ended.wait()
        await until(lambda: not _stopping._left_behind, "its task has ended")
        assert await on.stores.dump() == before


@pytest.mark.parametrize("landing", tuple(permutations("abc")))
async def test_results_are_committed_as_they_land_and_stored_in_call_order(
    landing: tuple[str, ...],
) -> None:
    """Hole 52."""
    may_end = {name: asyncio.Event() for name in "abc"}

    def waiting(name: str) -> Tool[..., Any]:
        async def act() -> str:
            """Act."""
            await may_end[name].wait()
            return name

        return tool(name=name)(act)

    async def ended(on: Bench) -> list[str]:
        return [e.name for e in await on.events() if isinstance(e, ToolCallEnd)]

    def has_landed(on: Bench, name: str) -> Callable[[], Coroutine[Any, Any, bool]]:
        async def so() -> bool:
            return name in await ended(on)

        return so

    async with bench() as on:
        await on.submit("go")
        model = ScriptedModel(calls(*(call(name) for name in "abc")), say("done"))
        run, _ = await on.begin(app_of(model, *map(waiting, "abc")))
        for name in landing:
            may_end[name].set()
            await until_so(has_landed(on, name), f"the result of {name} is committed")
        await run
        assert await ended(on) == list(landing)
        results = [e.item for e in await on.transcript() if isinstance(e.item, ToolResult)]
        assert [result.name for result in results] == ["a", "b", "c"]
        told = [item for item in model.requests[1].items if isinstance(item, ToolResult)]
        assert told == results


def raw(name: str, arguments: str) -> ScriptedAnswer:
    return ScriptedAnswer(calls=(ScriptedCall(name, arguments, "c1"),))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (raw("forget", "{}"), "there is no tool 'forget'; the tools are: look"),
        (raw("look", '{"key":'), "the arguments are wrong, the tool was not run: Invalid JSON"),
        (raw("look", '"key"'), "the arguments are wrong, the tool was not run"),
        (raw("look", ""), "the arguments are wrong, the tool was not run"),
        (raw("look", "{}"), "key: Field required"),
        (raw("look", '{"key":"bad"}'), "no such key"),
    ],
)
async def test_a_call_that_cannot_be_run_is_told_to_the_model_which_may_ask_again(
    asked: ScriptedAnswer, told: str
) -> None:
    ran: list[str] = []

    @tool
    async def look(key: str) -> str:
        """Look a key up."""
        if key == "bad":
            raise ToolError("no such key")
        ran.append(key)
        return f"found {key}"

    async with bench() as on:
        await on.submit("go")
        model = ScriptedModel(asked, raw("look", json.dumps({"key": "k"})), say("done"))
        assert (await on.run(app_of(model, look))).how == "released"
        assert await on.ending() is Ending.COMPLETED
        first, second = [e.item for e in await on.transcript() if isinstance(e.item, ToolResult)]
        assert first.is_error and not first.unknown
        assert told in str(first.output)
        assert first == model.requests[1].items[-1]
        assert (second.output, ran) == ("found k", ["k"])
        (record,) = await on.turns()
        assert (record.tool_calls, record.failed_tool_calls) == (2, 1)


@tool(effect="pure")
async def fetch(size: int) -> str:
    """Fetch so many bytes."""
    return "x" * size


def many(count: int, *others: ScriptedAnswer) -> ScriptedModel:
    """A model that asks for so many results of almost 1 MiB at once."""
    fetches = (call("fetch", size=2**20 - 2) for _ in range(count))
    return ScriptedModel(calls(*fetches, *others), say("done"))


async def test_large_results_that_land_together_are_kept_in_several_commits() -> None:
    async with bench() as on:
        await on.submit("go")
        end = await on.run(app_of(many(24), fetch))
        assert (end.how, end.failed_turns) == ("released", 0)
        results = [e.item for e in await on.transcript() if isinstance(e.item, ToolResult)]
        assert [result.is_error for result in results] == [False] * 24


async def test_results_that_no_commit_can_hold_fail_the_turn_and_stop_its_other_calls() -> None:
    stopped = asyncio.Event()

    @tool
    async def last() -> str:
        """Take long."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async with bench() as on:
        await on.submit("go")
        end = await on.run(app_of(many(40, call("last")), fetch, last))
        assert (end.how, end.failed_turns) == ("released", 1)
        (record,) = await on.turns()
        assert record.error is not None and record.error.kind == "too_big"
        assert stopped.is_set()
