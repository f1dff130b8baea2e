"""A turn that an operator gave up is not gone on with: the next message is a turn of its own."""

from __future__ import annotations

from changeover_shared._events import TurnStarted
from changeover_shared._items import AssistantMessage, ToolResult, UserMessage
from changeover_shared._store.records import GivenUp
from changeover_shared._words import Ending
from changeover_worker._session.signals import Moment
from changeover_worker.testing import ScriptedModel, call, say
from tests.support.holding import Bench, bench
from tests.support.recovering import Blocking, app_of, checkpoint_of, die_at


async def give_up(on: Bench, n: int, *submissions: str) -> None:
    store = on.stores.producer
    await store.quarantine.stop("s", reason="poison")
    head = await on.stores.worker.read_head("s")
    assert head is not None
    await store.quarantine.redrive("s", head, GivenUp(n, submissions, head.turn))


async def test_the_next_turn_begins_with_a_valid_context_and_counts_the_one_before() -> None:
    tool = Blocking("hang", "pure")
    async with bench() as on:
        await on.submit("first", "m1")
        await die_at(on, app_of(ScriptedModel(call("hang")), tool.tool), Moment.TOOL_STARTED)
        await give_up(on, 1, "m1")
        await on.submit("second", "m2")
        model = ScriptedModel(say("Hello."))
        await on.run(app_of(model, tool.tool))
        assert await on.ending("m1") is Ending.DEAD_LETTERED
        assert await on.ending("m2") is Ending.COMPLETED
        assert tool.ran <= 1
        (asked,) = model.requests
        said = [item.text for item in asked.items if isinstance(item, UserMessage)]
        assert said == ["first", "second"]
        assert not [i for i in asked.items if isinstance(i, AssistantMessage | ToolResult)]
        started = [e.turn_id for e in await on.events() if isinstance(e, TurnStarted)]
        assert started == ["t_1", "t_2"]
        checkpoint = await checkpoint_of(on)
        assert checkpoint.execution is None
        stats = checkpoint.stats
        assert (stats.turns, stats.aborted_turns, stats.model_calls) == (2, 1, 2)


async def test_a_turn_that_was_not_given_up_goes_on() -> None:
    tool = Blocking("hang", "pure")
    tool.go.set()
    async with bench() as on:
        await on.submit("first", "m1")
        await die_at(on, app_of(ScriptedModel(call("hang")), tool.tool), Moment.TOOL_STARTED)
        store = on.stores.producer
        await store.quarantine.stop("s", reason="wait")
        head = await on.stores.worker.read_head("s")
        assert head is not None
        await store.quarantine.redrive("s", head, GivenUp())
        await on.run(app_of(ScriptedModel(say("Hello.")), tool.tool))
        assert await on.ending("m1") is Ending.COMPLETED
