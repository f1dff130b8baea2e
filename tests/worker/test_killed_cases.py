"""Processes that end at a named moment of a turn, without a trace, and what follows them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from changeover_shared._items import AssistantMessage, ToolResult
from changeover_shared._store.executor import Executor
from changeover_shared._words import Ending
from changeover_worker.testing import ScriptedModel, say
from tests.support.exiting_worker import INCARNATION, app, exits
from tests.support.fleet import small_settings, stores_on
from tests.support.holding import Bench
from tests.support.recovering import SECOND, app_of, checkpoint_of, items_of, no_model
from tests.support.servers import flush, running_server

STREAMING = [("step_started", ""), ("delta", "1"), ("delta", "3"), ("before_commit", "end")]
"""The model is asked, and nothing that it said is committed."""
CALLING = [
    ("after_commit", "step"),
    ("assistant_committed", ""),
    ("tool_started", "tool-1"),
    ("tool_done", "tool-1"),
    ("before_commit", "result"),
]
"""The model's message with its call is committed, and no result is."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture
async def on(server: str) -> AsyncIterator[Bench]:
    flush(server)
    settings = small_settings()
    async with stores_on(await Executor.connect(server), settings) as stores:
        yield Bench(stores, settings)


@pytest.mark.parametrize(("moment", "detail"), STREAMING)
@pytest.mark.parametrize("wish", ["abort", "resume"])
async def test_a_process_that_ends_while_its_model_streams_loses_only_the_stream(
    server: str, on: Bench, wish: Any, moment: str, detail: str
) -> None:
    """Case M1: killed before the first delta, after some, or with the whole answer in hand."""
    await on.submit("hello")
    await exits(server, moment, detail, "Hello to you")
    await on.stores.worker.bury(INCARNATION)
    model = no_model() if wish == "abort" else ScriptedModel(say("Once more"))
    await on.run(app_of(model, on_takeover=wish), SECOND)
    said = [getattr(item, "text", "") for item in await items_of(on)]
    assert said == (["hello"] if wish == "abort" else ["hello", "Once more"])
    assert await on.ending() is (Ending.ABORTED if wish == "abort" else Ending.COMPLETED)
    checkpoint = await checkpoint_of(on)
    assert checkpoint.execution is None
    assert (checkpoint.stats.turns, len(model.requests)) == (1, int(wish == "resume"))


@pytest.mark.parametrize(("moment", "detail"), CALLING)
@pytest.mark.parametrize("wish", ["abort", "resume"])
async def test_a_process_that_ends_among_its_calls_leaves_the_message_that_asked_for_them(
    server: str, on: Bench, wish: Any, moment: str, detail: str
) -> None:
    """Case M2: killed before the call, in it, or after it; with `abort` the successor has neither
    the tool nor a model's answer, with `resume` it may run a pure call again."""
    await on.submit("hello")
    await exits(server, moment, detail, "never said", "blocking_tool")
    await on.stores.worker.bury(INCARNATION)
    execution = (await checkpoint_of(on)).execution
    assert execution is not None and execution.assistant is not None
    if wish == "abort":
        silent = no_model()
        await on.run(app_of(silent, on_takeover="abort"), SECOND)
        assert silent.requests == []
    else:
        tools = app("", "blocking_tool").agents["bot"].tools
        await on.run(app_of(ScriptedModel(say("all done")), *tools), SECOND)
    user, asked, result, *answer = await items_of(on)
    assert isinstance(asked, AssistantMessage) and isinstance(result, ToolResult)
    assert [c.call_id for c in asked.tool_calls] == [result.call_id] == ["tool-1"]
    assert result.unknown is (wish == "abort")
    assert [getattr(item, "text", "") for item in (user, *answer)] == (
        ["hello"] if wish == "abort" else ["hello", "all done"]
    )
    assert len(await on.turns()) == 1
