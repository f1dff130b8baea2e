"""What a successor does with the calls that it finds, as their tools declare what they may do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any, Literal

import pytest

from changeover_shared._events import ToolCallBegin, ToolCallEnd
from changeover_shared._items import ToolResult
from changeover_shared._words import Ending
from changeover_worker import ToolError
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._models.model import ModelRequest
from changeover_worker._models.scripted import Entry
from changeover_worker._session import signals
from changeover_worker._session.signals import Moment
from changeover_worker._tools.context import ToolContext
from changeover_worker._tools.tool import EffectWord, tool
from changeover_worker._turn.recovery import OnTakeover
from changeover_worker.testing import ScriptedModel, call, calls, say
from tests.support.holding import Bench, bench, until

Found = Literal["committed", "started", "stored", "failure stored"]
"""How far the call had come when its worker died."""

EFFECTS: tuple[EffectWord, ...] = ("pure", "idempotent", "once")
FOUND: tuple[Found, ...] = ("committed", "started", "stored", "failure stored")

RUNS_AGAIN: dict[tuple[EffectWord, Found], bool] = {
    (effect, found): effect != "once" and found in ("committed", "started")
    for effect, found in product(EFFECTS, FOUND)
}
"""From its commit on a call may have run: only what says that it may be repeated is repeated."""
RAN_BEFORE: dict[Found, int] = {"committed": 0, "started": 1, "stored": 1, "failure stored": 1}

UNKNOWN = "execution interrupted; result unknown after restart"


@pytest.fixture(autouse=True)
def _no_listener_stays() -> Iterator[None]:
    yield
    signals.listen(None)


class Acts:
    """An agent that makes one call to watch, beside one that never ends under the first worker."""

    def __init__(self, effect: EffectWord, found: Found, on_takeover: OnTakeover) -> None:
        self.runs: list[tuple[str, int]] = []
        """Each run's idempotency key and attempt."""
        self.first = True
        self.found = found
        self.there = asyncio.Event()

        @tool(effect=effect)
        async def act(ctx: ToolContext[None]) -> str:
            """Act."""
            self.runs.append((ctx.idempotency_key, ctx.attempt))
            if self.first and found == "started":
                self.there.set()
                await asyncio.Event().wait()
            if self.first and found == "failure stored":
                raise ToolError("no luck")
            return "acted" if self.first else "acted again"

        @tool(effect="pure")
        async def other() -> str:
            """Keep the group open."""
            if self.first:
                await asyncio.Event().wait()
            return "other"

        model = ScriptedModel.by(self._answer)
        self.app = App(
            agents=[Agent("bot", model="m", tools=[act, other], on_takeover=on_takeover)],
            models={"m": model},
        )

    def _answer(self, request: ModelRequest) -> Entry:
        if isinstance(request.items[-1], ToolResult):
            return say("done")
        return calls(call("act", call_id="c1"), call("other", call_id="c2"))

    def has_run(self, times: int) -> bool:
        return len(self.runs) == times

    async def reach(self, moment: Moment, session_id: str, detail: str) -> None:
        """Stop the first worker where it is to be found."""
        if not self.first:
            return
        if self.found == "committed" and moment is Moment.ASSISTANT_COMMITTED:
            self.there.set()
            await asyncio.Event().wait()
        if moment is Moment.AFTER_COMMIT and detail == "result":
            self.there.set()


async def taken_over(on: Bench, acts: Acts) -> None:
    """Run the turn until its call is where it should be found, kill the worker, and go on."""
    await on.submit("go")
    signals.listen(acts.reach)
    run, held = await on.begin(acts.app)
    await acts.there.wait()
    await on.die(run, held)
    acts.first = False
    assert (await on.run(acts.app, "w:00000002")).how == "released"


async def result_of(on: Bench, call_id: str = "c1") -> ToolResult:
    results = [e.item for e in await on.transcript() if isinstance(e.item, ToolResult)]
    (found,) = [result for result in results if result.call_id == call_id]
    return found


async def assert_told_once(on: Bench) -> None:
    """Each call begins and ends once in the journal, whoever ran it."""
    events = await on.events()
    for kind in (ToolCallBegin, ToolCallEnd):
        assert sorted(e.call_id for e in events if isinstance(e, kind)) == ["c1", "c2"]


@pytest.mark.parametrize(("effect", "found"), RUNS_AGAIN)
async def test_a_call_is_run_again_only_if_it_may_have_run_and_may_run_twice(
    effect: EffectWord, found: Found
) -> None:
    async with bench() as on:
        acts = Acts(effect, found, "resume")
        await taken_over(on, acts)
        again = RUNS_AGAIN[effect, found]
        attempts = [1] * RAN_BEFORE[found] + [2] * again
        assert acts.runs == [("s/t_1/0/c1", attempt) for attempt in attempts]
        result = await result_of(on)
        stored = {"stored": ("acted", False, False), "failure stored": ("no luck", True, False)}
        unstored = ("acted again", False, False) if again else (UNKNOWN, True, True)
        assert (result.output, result.is_error, result.unknown) == stored.get(found, unstored)
        assert await on.ending() is Ending.COMPLETED
        await assert_told_once(on)


@pytest.mark.parametrize(("effect", "found"), RUNS_AGAIN)
async def test_a_turn_that_is_aborted_by_a_takeover_keeps_results_and_runs_nothing(
    effect: EffectWord, found: Found
) -> None:
    async with bench() as on:
        acts = Acts(effect, found, "abort")
        await taken_over(on, acts)
        assert len(acts.runs) == RAN_BEFORE[found]
        result = await result_of(on)
        stored = {"stored": ("acted", False), "failure stored": ("no luck", False)}
        assert (result.output, result.unknown) == stored.get(found, (UNKNOWN, True))
        assert await on.ending() is Ending.ABORTED
        await assert_told_once(on)


@pytest.mark.parametrize("effect", ["pure", "idempotent"])
async def test_the_key_stays_the_same_however_often_its_worker_dies(effect: EffectWord) -> None:
    async with bench() as on:
        acts = Acts(effect, "started", "resume")
        await on.submit("go")
        signals.listen(acts.reach)
        for k in range(1, 4):
            run, held = await on.begin(acts.app, f"w:0000000{k}")
            await until(partial(acts.has_run, k), "the call is running")
            await on.die(run, held)
        acts.first = False
        await on.run(acts.app, "w:00000009")
        assert acts.runs == [("s/t_1/0/c1", attempt) for attempt in (1, 2, 3, 4)]
        assert await on.ending() is Ending.COMPLETED


def keyed() -> tuple[list[str], Any]:
    keys: list[str] = []

    @tool
    async def act(ctx: ToolContext[None]) -> str:
        """Act."""
        keys.append(ctx.idempotency_key)
        return "acted"

    return keys, act


async def test_no_two_calls_of_a_session_share_a_key_where_a_provider_repeats_its_ids() -> None:
    keys, act = keyed()
    same = calls(call("act", call_id="c"), call("act", call_id="c"))
    async with bench() as on:
        model = ScriptedModel(same, same, say("one"), same, say("two"))
        app = App(agents=[Agent("bot", model="m", tools=[act])], models={"m": model})
        await on.submit("go")
        await on.submit("again", "m2")
        await on.run(app)
        assert await on.ending("m2") is Ending.COMPLETED
        assert sorted(keys) == [
            "s/t_1/0/c",
            "s/t_1/0/c_1",
            "s/t_1/1/c_2",
            "s/t_1/1/c_3",
            "s/t_2/0/c_4",
            "s/t_2/0/c_5",
        ]
        begun = [event.call_id for event in await on.events() if isinstance(event, ToolCallBegin)]
        assert begun == ["c", *(f"c_{k}" for k in range(1, 6))]


def test_a_key_names_its_step_where_the_conversation_has_forgotten_an_id() -> None:
    def key(step: int) -> str:
        known: Any = {"session_id": "s", "turn_id": "t_1", "call_id": "c", "fence": 1}
        return ToolContext(**known, step=step, resources=None).idempotency_key

    assert (key(0), key(1)) == ("s/t_1/0/c", "s/t_1/1/c")
