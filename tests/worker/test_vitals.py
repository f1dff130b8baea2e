"""A worker's verdict on itself: what makes a restart worth while, and what does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from changeover import Client, Outcome
from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Peeked
from changeover_shared._words import Ending
from changeover_worker import Agent, App, tool
from changeover_worker._process.vitals import Vitals
from changeover_worker.testing import ScriptedModel, call, say
from tests.support.nodes import Node, running_node
from tests.support.working import own_fleet, working

LIMIT_S = 3.0
"""How long the claim loop may be silent here."""
LONGER_S = 5.0


@pytest.fixture(scope="module")
def server() -> Iterator[Node]:
    with running_node(args=["--appendonly", "yes", "--appendfsync", "always"]) as server:
        yield server


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Vitals, "CLAIMS_LIMIT_S", LIMIT_S)
    monkeypatch.setattr(Vitals, "PING_EVERY_S", 0.2)
    monkeypatch.setattr(Vitals, "PING_TIMEOUT_S", 0.5)
    monkeypatch.setattr("changeover_worker._process.claim_decisions.LISTEN_S", 0.5)


@tool
async def blocks() -> str:
    """Keeps the loop from running."""
    time.sleep(1.5)  # noqa: ASYNC251 - that is what is found out
    return "done"


def app(pause_s: float = 0.0) -> App:
    """One agent that answers in six pieces, one that asks for the tool above."""
    slow = ScriptedModel.always(say("......"), chunk=1, pause=pause_s)
    return App(
        agents=[Agent("assistant", model="slow"), Agent("blocking", model="calls", tools=[blocks])],
        models={"slow": slow, "calls": ScriptedModel(call("blocks"), say("done"))},
    )


async def ask(server: Node, settings: Settings, agent: str = "assistant") -> Outcome:
    async with Client(server.url, settings=settings) as client:
        return await client.run(f"{agent}:1", "hello", agent=agent, timeout="60s")


async def test_a_blocked_loop_is_not_live_and_the_log_shows_where(server: Node) -> None:
    settings = own_fleet(loop_lag_limit="500ms")
    async with working(app(), settings, server.url) as at:
        assert at.worker.liveness().live
        outcome = await ask(server, settings, agent="blocking")
        assert outcome.ending is Ending.COMPLETED
        await at.has_logged("live_again")
        (blocked,) = at.logged("loop_blocked")
        assert "time.sleep(1.5)" in blocked["stack"]
        assert blocked["ms"] >= 500
        (verdict,) = at.logged("not_live")
        assert "event loop has been blocked" in verdict["reason"]
        assert at.worker.liveness().live


async def test_a_claim_loop_that_hangs_is_not_live_while_redis_answers(
    server: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = own_fleet()
    goes_on = asyncio.Event()
    looks = LeaseStore.peek

    async def hangs(
        store: LeaseStore, partition: int, routes: list[str], *, window: int, **more: Any
    ) -> Peeked:
        if window > 1:  # not the sweep, which looks with a window of one
            await goes_on.wait()
        return await looks(store, partition, routes, window=window, **more)

    async with working(app(), settings, server.url) as at:
        monkeypatch.setattr(LeaseStore, "peek", hangs)
        asked = asyncio.create_task(ask(server, settings))
        (verdict,) = await at.has_logged("not_live")
        assert "the claim loop has finished no round" in verdict["reason"]
        assert not at.worker.liveness().live
        goes_on.set()
        await at.has_logged("live_again")
        assert (await asked).ending is Ending.COMPLETED


async def test_a_connection_that_is_back_but_may_not_consume_is_not_live(
    server: Node,
) -> None:
    """Redis answers a ping and refuses bells and scripts: nothing would ever be claimed."""
    settings = own_fleet()
    async with working(app(), settings, server.url) as at:
        server.client.acl_setuser("default", enabled=True, commands=["-bzpopmin", "-evalsha"])
        try:
            (verdict,) = await at.has_logged("not_live")
            assert "the claim loop has finished no round" in verdict["reason"]
        finally:
            server.client.acl_setuser("default", enabled=True, categories=["+@all"])
        await at.has_logged("live_again")
        assert (await ask(server, settings)).ending is Ending.COMPLETED


@pytest.mark.parametrize("away", ["killed", "frozen"])
async def test_a_worker_whose_redis_is_away_is_live_and_consumes_again(
    server: Node, away: str
) -> None:
    settings = own_fleet()
    async with working(app(), settings, server.url) as at:
        if away == "killed":
            server.kill()
            await asyncio.sleep(LONGER_S)  # longer than a claim loop may be silent
            server.start_again()
        else:
            with server.frozen():
                await asyncio.sleep(LONGER_S)
        assert (await ask(server, settings)).ending is Ending.COMPLETED
        assert at.logged("not_live") == []


async def test_a_worker_whose_slots_are_all_taken_is_live(server: Node) -> None:
    settings = own_fleet(concurrency=1)
    async with working(app(pause_s=LONGER_S / 5), settings, server.url) as at:
        assert (await ask(server, settings)).ending is Ending.COMPLETED
        assert at.logged("not_live") == []
