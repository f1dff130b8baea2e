"""A fleet that has lived through everything leaves nothing behind, once all is purged."""

from __future__ import annotations

import asyncio

import pytest

from changeover import Operator
from changeover_shared._store.executor import Executor
from changeover_shared._store.fleet import Fleet
from changeover_shared._store.keys import Keys
from changeover_shared._store.lease_store import LeaseStore
from changeover_worker import Agent, App, Compaction, Turn, tool
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse
from changeover_worker._models.scripted import ScriptedAnswer
from changeover_worker.testing import ScriptedModel, call, fail, say
from tests.support.leaks import held, leaks
from tests.support.servers import SERVERS, running_server
from tests.support.working import die, eventually, eventually_found, own_fleet, take, working


class Stuck:
    """A model that never answers."""

    name = "stuck"

    def __init__(self) -> None:
        self.asked = 0

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        self.asked += 1
        await asyncio.Event().wait()
        raise AssertionError("it is cancelled before")


def everything(stuck: Stuck) -> App:
    """Tools, compaction, a handler that sleeps, a model that fails, one that hangs."""

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    def answer(request: ModelRequest) -> ScriptedAnswer:
        if request.tools and request.items[-1].type == "user":
            return call("look")
        return say("a summary of all that was said" if not request.tools else "yes")

    async def done() -> str:
        return "done"

    app = App(
        agents=[
            Agent("bot", model="m", tools=[look]),
            Agent("brief", model="m", compaction=Compaction(at_tokens=150, keep_tokens=20)),
            Agent("broken", model="no"),
            Agent("slow", model="stuck"),
        ],
        models={
            "m": ScriptedModel.by(answer),
            "no": ScriptedModel.always(fail()),
            "stuck": stuck,
        },
    )

    @app.handler("naps")
    async def naps(turn: Turn[None]) -> str:
        await turn.step("before", done, effect="pure")
        await turn.sleep("100ms")
        return await turn.step("after", done, effect="pure")

    @app.handler("sleeps")
    async def sleeps(turn: Turn[None]) -> str:
        await turn.sleep("1h")
        return await turn.step("after", done, effect="pure")

    return app


async def use(client: Operator, stuck: Stuck) -> None:
    """What people and a worker do with sessions of every kind."""
    for agent in ("bot", "naps", "brief"):
        for k in range(12 if agent == "brief" else 2):
            await client.run(f"{agent}:1", f"message {k}", agent=agent, timeout="20s")
    failed = await client.submit("broken:1", "hello", agent="broken")
    assert (await client.wait("broken:1", failed.submission_id)).ending == "failed"
    parked = await client.submit("sleeps:1", "hello", agent="sleeps")

    async def is_parked() -> bool:
        return (await client.session("sleeps:1")).status == "parked"

    await eventually_found(is_parked, "a session sleeps for an hour")
    running = await client.submit("slow:1", "hello", agent="slow")
    await eventually(lambda: stuck.asked == 1, "a model hangs")
    taken_back = await client.submit("slow:1", "more", agent="slow")
    assert await client.cancel("slow:1", taken_back.submission_id)
    await client.interrupt("slow:1")
    assert (await client.wait("slow:1", running.submission_id)).ending == "aborted"
    await client.submit("slow:2", "hello", agent="slow")
    await eventually(lambda: stuck.asked == 2, "another model hangs")
    await client.delete("sleeps:1")
    assert (await client.wait("sleeps:1", parked.submission_id)).ending == "cancelled"
    await client.delete("bot:1")
    await client.run("bot:1", "a new life", agent="bot", timeout="20s")
    closed = await client.close_session("naps:1")
    await client.wait("naps:1", closed.submission_id)
    await client.submit("nowhere:1", "hello", agent="nobody")
    await client.reroute("nowhere:1", "elsewhere")


async def deaths(store: LeaseStore, client: Operator) -> None:
    """Workers that end without a trace, until a session is quarantined."""
    await client.submit("cursed:1", "hello", agent="cursed")
    for k in range(5):
        grant = await take(store, "cursed:1", f"x:{k}", ttl_ms=30_000, solo=k >= 3)
        await die(store, "cursed:1", grant)
    head = await store.read_head("cursed:1")
    assert head is not None
    (refused,) = await store.claim(
        store.keys.of("cursed:1").partition,
        head.route,
        ["cursed:1"],
        incarnation="x:6",
        nonce="n" * 32,
        ttl_ms=30_000,
        max_step_ms=1,
        solo=True,
        not_after_ms=store.clock.now_ms() + 5_000,
    )
    assert (await client.session("cursed:1")).status == "quarantined", refused


@pytest.mark.parametrize("kind", SERVERS)
async def test_nothing_is_left_without_an_owner_or_an_end(kind: str) -> None:
    """After everything, with all sessions deleted and the window over, `purge` leaves the numbers
    that must never go back, what holds for the fleet, and hints that end by themselves."""
    settings = own_fleet(
        dedup_window="200ms", lease="3s", renew="500ms", margin="500ms", drain_grace="200ms"
    )
    stuck = Stuck()
    with running_server(kind) as url:
        executor = await Executor.connect(url)
        async with Operator(url, settings=settings) as client:
            keys = Keys(settings.prefix, settings.partitions)
            async with working(everything(stuck), settings, url) as at:
                await use(client, stuck)
                await deaths(LeaseStore(await Fleet.join(executor, settings)), client)
                lives = (at.worker.incarnation,)
                assert leaks(await held(executor, keys), workers=lives) == []
                at.worker.drain("the day is over")
                await at.has_logged("session_handed_off")
            assert leaks(await held(executor, keys)) == []
            await purge_all(client, executor, keys)
            found = await held(executor, keys)
        await executor.aclose()
    assert leaks(found, purged=True) == []
    left = {(owner.kind, owner.name) for _, owner in found.owned() if owner.kind != "bell"}
    fleets = {("fleet", name) for name in ("config", "agents", "sweep")}
    assert left <= {*fleets, ("partition", "meta")}


async def purge_all(client: Operator, executor: Executor, keys: Keys) -> None:
    """Delete every session, wait until the window is over, and forget the rest."""
    for info in (await client.sessions()).items:
        assert await client.delete(info.session_id)

    async def purged() -> bool:
        await client.purge()
        counts = [("ZCARD", at.named("graves")) for at in keys.all]
        return sum(map(int, await executor.commands(counts))) == 0

    await eventually_found(purged, "every tombstone is forgotten")
