"""What must not be done twice waits until its commit is as safe as was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from changeover_shared._items import ToolResult
from changeover_shared._settings import Durability
from changeover_shared._store.fleet import Confirmation, Fleet
from changeover_shared._store.keys import PartitionKeys
from changeover_worker import Turn
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._models.model import ModelRequest
from changeover_worker._models.scripted import Entry
from changeover_worker._tools.tool import EffectWord, tool
from changeover_worker.testing import ScriptedModel, call, calls, say
from tests.support.handling import Works, app_of
from tests.support.holding import Bench, bench, until

WAITS: Mapping[EffectWord, bool] = {"pure": False, "idempotent": True, "once": True}


class Confirming:
    """Confirms nothing until it may, in place of replicas."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.may = asyncio.Event()

        async def confirm(
            fleet: Fleet, marks: Mapping[PartitionKeys, str], durability: Durability
        ) -> dict[PartitionKeys, Confirmation]:
            self.asked += 1
            await self.may.wait()
            return {one: Confirmation(True, True, 1, 1) for one in marks}

        monkeypatch.setattr(Fleet, "confirm", confirm)


def agent_app(works: Works, effect: EffectWord) -> App:
    """An agent with one tool, which never ends."""
    work = works.hangs("act")

    @tool(effect=effect)
    async def act() -> None:
        """Act."""
        await work()

    def answer(request: ModelRequest) -> Entry:
        if isinstance(request.items[-1], ToolResult):
            return say("done")
        return calls(call("act", call_id="c1"))

    model = ScriptedModel.by(answer)
    return App(agents=[Agent("bot", model="m", tools=[act])], models={"m": model})


def handler_app(works: Works, effect: EffectWord) -> App:
    """A handler with one step, which never ends."""

    async def handler(turn: Turn[Any]) -> None:
        await turn.step("act", works.hangs("act"), effect=effect)

    return app_of(handler)


async def waits_for_it(on: Bench, app: App, works: Works, confirming: Confirming) -> bool:
    """Run the session until its effect runs, then let its worker die: whether it had to wait."""
    confirming.may.clear()
    asked, ran = confirming.asked, works.ran["act"]
    run, held = await on.begin(app, f"w:{ran + 1:08}")
    await until(lambda: confirming.asked > asked or works.ran["act"] > ran, "it runs or waits")
    waited = works.ran["act"] == ran
    confirming.may.set()
    await until(lambda: works.ran["act"] > ran, "it runs")
    await on.die(run, held)
    return waited


@pytest.mark.parametrize("effect", WAITS)
@pytest.mark.parametrize("app_with", [agent_app, handler_app])
async def test_an_effect_waits_in_its_first_run_and_in_every_other(
    app_with: Any, effect: EffectWord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hole 27: a failover must not forget that it was begun, by whichever worker."""
    works, confirming = Works(), Confirming(monkeypatch)
    app = app_with(works, effect)
    async with bench() as on:
        await on.submit("go")
        assert await waits_for_it(on, app, works, confirming) is WAITS[effect]
        if effect != "once":
            assert await waits_for_it(on, app, works, confirming) is WAITS[effect]
