"""Tool results that are too large to be shown whole: kept whole, shown in part, read by page."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from changeover_shared._errors import Invalid
from changeover_shared._events import ToolCallBegin
from changeover_shared._items import ToolResult
from changeover_shared._ops import CompactOp, RollbackOp
from changeover_shared._words import Effect, Ending
from changeover_worker import Agent, App, Compaction, tool
from changeover_worker._models.model import ModelRequest
from changeover_worker._session import signals
from changeover_worker._session.signals import Moment
from changeover_worker.testing import ScriptedModel, call, calls, say
from tests.support.holding import bench, until

BIG = "a" * 32_000 + "é" * 20_000 + "z" * 9_000


@tool(effect="pure")
async def fetch() -> str:
    """Fetch a page."""
    return BIG


def app_of(model: Any, compaction: Compaction | None = None) -> App:
    agent = Agent("bot", model="main", tools=[fetch], compaction=compaction)
    return App(agents=[agent], models={"main": model})


def read(item: Any = 3, page: Any = 1) -> Any:
    return call("read_result", item=item, page=page)


def outputs(request: ModelRequest) -> list[Any]:
    return [item.output for item in request.items if isinstance(item, ToolResult)]


def tools(request: ModelRequest) -> list[str]:
    return [spec.name for spec in request.tools]


async def test_a_large_result_is_kept_whole_and_shown_in_part_the_same_in_each_request() -> None:
    model = ScriptedModel(call("fetch"), say("Fetched."), say("Again."))
    async with bench() as b:
        await b.submit("fetch it", "m1")
        await b.run(app_of(model))
        await b.submit("and now", "m2")
        await b.run(app_of(model), "w2:00000002")
        item = (await b.transcript())[2].item
        assert isinstance(item, ToolResult)
        assert item.output == BIG
        (first,), (second,) = outputs(model.requests[1]), outputs(model.requests[2])
        assert first == second
        assert len(first) < 30_000
        assert "81000 bytes in all" in first
        assert "read_result(item=3, page=1) reads page 1 of 3" in first
        assert [tools(request) for request in model.requests] == [
            ["fetch"],
            ["fetch", "read_result"],
            ["fetch", "read_result"],
        ]


async def test_the_pages_of_a_result_come_to_the_whole() -> None:
    model = ScriptedModel(
        call("fetch"), calls(read(page=1), read(page=2), read(page=3)), say("All read.")
    )
    async with bench() as b:
        await b.submit("fetch it", "m1")
        await b.run(app_of(model))
        pages = outputs(model.requests[2])[1:]
        assert [page.split("\n")[0] for page in pages] == [
            f"[item 3, page {n} of 3]" for n in (1, 2, 3)
        ]
        assert "".join(page.partition("\n")[2] for page in pages) == BIG
        effects = [e.effect for e in await b.events() if isinstance(e, ToolCallBegin)]
        assert effects == [Effect.PURE] * 4


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"item": 3, "page": 4}, "item 3 has 3 pages, there is no page 4"),
        ({"item": 1, "page": 1}, "item 1 is no tool result"),
        ({"item": 99, "page": 1}, "item 99 is no tool result"),
        ({"item": 10**40, "page": 1}, "is no tool result"),
        ({"item": "3", "page": 1}, "takes item and page, whole numbers from 1 on"),
        ({}, "takes item and page, whole numbers from 1 on"),
    ],
)
async def test_numbers_that_name_no_page_are_error_results(
    arguments: dict[str, Any], told: str
) -> None:
    model = ScriptedModel(call("fetch"), call("read_result", **arguments), say("So be it."))
    async with bench() as b:
        await b.submit("fetch it", "m1")
        await b.run(app_of(model))
        assert await b.ending() is Ending.COMPLETED
        result = model.requests[2].items[-1]
        assert isinstance(result, ToolResult)
        assert result.is_error
        assert told in str(result.output)


async def test_a_result_can_be_read_after_a_summary_has_replaced_it() -> None:
    model = ScriptedModel(call("fetch"), say("Fetched."), say("A summary."), read(), say("Read."))
    app = app_of(model, Compaction(keep_tokens=1))
    async with bench() as b:
        await b.submit("fetch it", "m1")
        await b.run(app)
        await b.submit(CompactOp(), "c1")
        await b.run(app)
        assert await b.ending("c1") is Ending.COMPLETED
        assert "aaaa" in getattr(model.requests[2].items[0], "text", "")
        await b.submit("what was it?", "m2")
        await b.run(app, "w2:00000002")
        assert tools(model.requests[3]) == ["fetch", "read_result"]
        assert "- fetch: read_result(item=3, page=1) reads page 1 of 3" in getattr(
            model.requests[3].items[0], "text", ""
        )
        (page,) = outputs(model.requests[4])
        assert page == f"[item 3, page 1 of 3]\n{BIG[:32_384]}"


async def test_a_result_that_was_rolled_back_is_not_read_any_more() -> None:
    model = ScriptedModel(call("fetch"), say("Fetched."), read(), say("Gone."))
    app = app_of(model)
    async with bench() as b:
        await b.submit("fetch it", "m1")
        await b.run(app)
        await b.submit(RollbackOp(to="t_1"), "r1")
        await b.run(app)
        await b.submit("read it", "m2")
        await b.run(app)
        assert tools(model.requests[2]) == ["fetch"]
        assert outputs(model.requests[3]) == [
            "item 3 is no tool result; the notes of large results name them"
        ]


async def test_a_successor_reads_the_page_that_its_predecessor_was_reading() -> None:
    model = ScriptedModel(call("fetch"), read(), say("Read."))
    app = app_of(model)
    there: list[str] = []

    async def listener(moment: Moment, session_id: str, detail: str) -> None:
        if moment is Moment.TOOL_DONE and len(there) < 2:
            there.append(detail)
            if len(there) == 2:
                await never

    async with bench() as b:
        never = asyncio.get_running_loop().create_future()
        await b.submit("fetch it", "m1")
        signals.listen(listener)
        try:
            run, lease = await b.begin(app)
            await until(lambda: len(there) == 2, "the page was read")
            await b.die(run, lease)
            await b.run(app, "w2:00000002")
        finally:
            signals.listen(None)
        assert await b.ending() is Ending.COMPLETED
        assert outputs(model.requests[2])[1].startswith("[item 3, page 1 of 3]\naaa")


async def test_a_large_result_of_a_turn_that_is_open_counts_as_what_is_shown_of_it() -> None:
    model = ScriptedModel(*(call("fetch") for _ in range(3)), say("Done."))
    app = app_of(model, Compaction(at_tokens=25_000, keep_tokens=10))
    async with bench() as b:
        await b.submit("fetch it", "m1")
        await b.run(app)
        assert await b.ending() is Ending.COMPLETED
        assert "context_compacted" not in await b.types()
        assert len(json.dumps([str(o) for o in outputs(model.requests[-1])])) < 120_000


def test_an_app_has_no_tool_of_the_name_that_reads_results() -> None:
    @tool
    async def read_result() -> str:
        """Mine."""
        return ""

    with pytest.raises(Invalid, match="every agent has a tool 'read_result' already"):
        Agent("bot", model="main", tools=[read_result])
