"""Scheduled messages with real workers: each time one turn, whoever leads and however many."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from changeover import Client
from changeover_shared._settings import Settings
from changeover_shared._store.executor import Executor
from changeover_shared._store.keys import Keys
from tests.support.driving import due_since
from tests.support.scripted_app import app
from tests.support.servers import SERVERS, running_server
from tests.support.working import Working, eventually, own_fleet, working


@dataclass
class Fleet:
    """A server, a client of it, and what belongs to neither."""

    url: str
    settings: Settings
    client: Client
    executor: Executor

    async def let_be_due(self, name: str, at_ms: int) -> None:
        keys = Keys(self.settings.prefix, self.settings.partitions).schedules
        value = await self.executor.command("HGET", keys.by_name, name)
        await self.executor.commands(
            [
                ("HSET", keys.by_name, name, due_since(value, at_ms)),
                ("ZADD", keys.due, at_ms, name),
            ]
        )

    async def leader(self) -> str:
        key = Keys(self.settings.prefix, self.settings.partitions).sweep
        found = await self.executor.command("GET", key)
        return found.decode() if found else ""


@pytest.fixture(params=SERVERS)
async def fleet(request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    with running_server(request.param) as url:
        settings = own_fleet(agent="assistant")
        executor = await Executor.connect(url)
        try:
            async with Client(url, settings=settings) as client:
                yield Fleet(url, settings, client, executor)
        finally:
            await executor.aclose()


async def test_a_message_runs_once_its_time_has_come(fleet: Fleet) -> None:
    async with working(app, fleet.settings, fleet.url):
        outcome = await fleet.client.run("web:1", "hello", delay="300ms", timeout="20s")
    assert outcome.text == "you said: hello"
    accepted, started = await fleet.client.events("web:1"), outcome.started_at_ms
    first = accepted.items[-1]
    assert (first.type, started - first.at_ms >= 300) == ("message", True)


async def test_each_time_is_one_turn_whoever_leads(fleet: Fleet) -> None:
    """Three workers; the one that leads stops after the first time."""
    await fleet.client.schedule("news", "web:1", "What is new?", every="30d")
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(working(app, fleet.settings, fleet.url, name=name))
            for name in ("a", "b", "c")
        ]
        await fleet.let_be_due("news", 1000)
        first = await _fired(workers)
        await fleet.client.wait("web:1", "schedule:news:1000", timeout="20s")
        first.worker.drain("another one leads")
        await first.task
        await fleet.let_be_due("news", 2000)
        second = await _fired([one for one in workers if one is not first])
        await fleet.client.wait("web:1", "schedule:news:2000", timeout="20s")
    turns = (await fleet.client.turns("web:1")).items
    assert [one.submission_ids for one in turns] == [
        ("schedule:news:2000",),
        ("schedule:news:1000",),
    ]
    assert [one.text for one in turns] == ["you said: What is new?"] * 2
    told = [one["submission"] for w in (first, second) for one in w.logged("schedule_fired")]
    assert told == ["schedule:news:1000", "schedule:news:2000"]
    (kept,) = (await fleet.client.schedules()).items
    assert kept.due_at_ms > turns[0].finished_at_ms


async def _fired(workers: list[Working]) -> Working:
    """The worker that has served a schedule."""
    await eventually(
        lambda: any(one.logged("schedule_fired") for one in workers), "a schedule is served"
    )
    return next(one for one in workers if one.logged("schedule_fired"))
