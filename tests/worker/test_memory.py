"""Workers and a Redis whose memory runs short: producers are refused, work goes on or waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from changeover import Busy, Client
from changeover_shared._items import AssistantMessage
from changeover_shared._settings import Settings
from changeover_shared._store.executor import Executor
from changeover_shared._store.keys import Keys
from changeover_worker import Agent, App
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse, TextDelta
from tests.support.servers import SERVERS, running_server
from tests.support.working import eventually, eventually_found, own_fleet, working


@dataclass
class Scene:
    """A server of its own, a client, and a worker."""

    url: str
    settings: Settings
    operator: Executor
    client: Client

    async def limit(self, maxmemory: int) -> None:
        """How much the server may use; 0: all there is."""
        await self.operator.command("CONFIG", "SET", "maxmemory", maxmemory)

    async def maxmemory(self) -> int:
        return int((await self.operator.command("CONFIG", "GET", "maxmemory"))[1])

    async def used(self) -> int:
        info = (await self.operator.command("INFO", "memory")).decode()
        facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
        return int(facts["used_memory"])

    async def pressed(self) -> set[bool]:
        """What the partitions say, each different answer once."""
        keys = Keys(self.settings.prefix, self.settings.partitions)
        asked = [("HGET", at.named("meta"), "pressure") for at in keys.all]
        found = await self.operator.commands(asked)
        return {said is not None for said in found}

    async def refusals(self) -> int:
        """How often the server itself has refused something for want of memory."""
        info = (await self.operator.command("INFO", "errorstats")).decode()
        line = next((one for one in info.splitlines() if one.startswith("errorstat_OOM:")), "")
        return int(line.partition("count=")[2] or 0)

    async def lease_ends(self, session_id: str) -> int:
        """When the session's lease ends, on Redis's clock."""
        at = Keys(self.settings.prefix, self.settings.partitions).of(session_id)
        return int(float(await self.operator.command("ZSCORE", at.named("leases"), session_id)))


class Gate:
    """A model that answers, or fails, when the test opens it."""

    name = "gate"

    def __init__(self, error: Exception | None = None) -> None:
        self.open = asyncio.Event()
        self.asked = 0
        self._error = error

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.asked += 1
        await self.open.wait()
        if self._error is not None:
            raise self._error
        await emit(TextDelta("done"))
        return ModelResponse(AssistantMessage(text="done"))


def gated(gate: Gate) -> App:
    return App(agents=[Agent("assistant", model="gate")], models={"gate": gate})


@pytest.fixture(params=SERVERS)
async def scene(request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    settings = own_fleet(lease="3s", renew="500ms", margin="500ms")
    with running_server(request.param) as url:
        operator = await Executor.connect(url)
        async with Client(url, settings=settings) as client:
            yield Scene(url, settings, operator, client)
        await operator.aclose()


async def test_messages_are_refused_before_redis_refuses_and_taken_again_afterwards(
    scene: Scene,
) -> None:
    """G9, hole 40."""
    gate = Gate()
    gate.open.set()
    async with working(gated(gate), scene.settings, scene.url) as at:
        await scene.client.run("s:1", "hello")
        # So much that buffers, which come and go, weigh nothing.
        await scene.operator.command("SETRANGE", "ballast", 20 * 1024**2, "x")
        await scene.limit(round(await scene.used() * 1.05))
        limit = await scene.maxmemory()
        (high,) = await at.has_logged("redis_memory_high")
        assert high["limit"] == limit
        assert high["used"] > 0.9 * limit
        assert await scene.pressed() == {True}
        with pytest.raises(Busy, match=r"short of memory .* of .*nothing was accepted") as refusal:
            await scene.client.submit("s:1", "more")
        assert (refusal.value.scope, refusal.value.limit) == ("memory", limit)
        assert await scene.refusals() == 0
        await scene.limit(10 * limit)
        await at.has_logged("redis_memory_back")
        assert await scene.pressed() == {False}
        assert (await scene.client.run("s:1", "more")).text == "done"
        assert len(at.logged("redis_memory_high")) == 1


async def test_a_partition_that_was_told_otherwise_is_corrected(scene: Scene) -> None:
    """What a leader that died has said, or a failover has brought back."""
    keys = Keys(scene.settings.prefix, scene.settings.partitions)
    await scene.client.submit("s:1", "hello")
    meta = keys.of("s:1").named("meta")
    await scene.operator.command("HSET", meta, "pressure", "9|10|99999999999999")
    with pytest.raises(Busy):
        await scene.client.submit("s:1", "hello")
    async with working(gated(Gate()), scene.settings, scene.url):

        async def corrected() -> bool:
            return await scene.pressed() == {False}

        await eventually_found(corrected, "the partition is open again")
        await scene.client.submit("s:1", "hello")


async def test_a_turn_waits_for_memory_and_goes_on_without_a_takeover(scene: Scene) -> None:
    """Hole 40: the commit is refused whole, the lease lives on, and nothing is done twice."""
    gate = Gate()
    async with working(gated(gate), scene.settings, scene.url) as at:
        receipt = await scene.client.submit("s:1", "hello")
        await eventually(lambda: gate.asked == 1, "the model is asked")
        first_end = await scene.lease_ends("s:1")
        await scene.limit(1)
        gate.open.set()

        async def outlasted() -> bool:
            return await scene.refusals() > 3 and await scene.lease_ends("s:1") > first_end + 1000

        await eventually_found(outlasted, "the lease is renewed while its commit waits")
        with pytest.raises(Busy, match="short of memory"):
            await scene.client.submit("s:1", "more")
        await scene.limit(0)
        outcome = await scene.client.wait("s:1", receipt.submission_id)
        assert (outcome.text, gate.asked) == ("done", 1)
        assert (await scene.client.session("s:1")).fence == 1
        assert at.logged("lease_lost") == at.logged("session_taken") == []
        await at.has_logged("redis_memory_back")
        assert (await scene.client.run("s:1", "more")).text == "done"
    told = scene.client.follow("s:1", after="start", until=receipt.submission_id)
    events = [event async for event in told]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events].count("turn_completed") == 1


async def test_a_turn_that_fails_ends_with_a_full_memory(scene: Scene) -> None:
    """Hole 40: what only settles frees more than it adds."""
    gate = Gate(RuntimeError("no key"))
    async with working(gated(gate), scene.settings, scene.url):
        receipt = await scene.client.submit("s:1", "hello")
        await eventually(lambda: gate.asked == 1, "the model is asked")
        await scene.limit(1)
        gate.open.set()
        outcome = await scene.client.wait("s:1", receipt.submission_id)
        assert outcome.ending == "failed"
        assert await scene.maxmemory() == 1
