"""What a look at a fleet finds, and what it costs Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator

import fakeredis
import pytest

from changeover import Glance, Invalid, QueueActivity, WorkerInfo
from changeover._watch import QUIET_EVERY_S, ROUTES_EVERY_S, Watch
from tests.client.conftest import World
from tests.client.test_reading_cost import asking
from tests.support.fleet import Stores, fake_executor, small_settings, stores_on


async def look(world: World) -> Glance:
    """One look, and no more."""
    async for glance in world.client.watch(every="1h"):
        return glance
    raise AssertionError("it looks for ever")


async def register(world: World, name: str, *, age: float = 0, **given: object) -> None:
    """Put a worker into the registry that renewed `age` renewals ago."""
    renew_ms = world.settings.renew.total_seconds() * 1000
    info = WorkerInfo.model_validate(
        {
            "worker": name,
            "incarnation": f"{name}:1",
            "renewed_at_ms": round(await world.stores.producer.read_time() - age * renew_ms),
            **given,
        }
    )
    await world.stores.worker.register(info.incarnation, info)


async def test_an_empty_fleet_has_nothing_to_show(world: World) -> None:
    found = await look(world)
    assert (found.sessions, found.running, found.ready, found.timers) == (0, 0, 0, 0)
    assert (found.queues, found.workers, found.fleet) == ((), (), world.settings.prefix)


async def test_a_look_counts_what_waits_runs_and_stands_still(world: World) -> None:
    await world.client.submit("web:1", "one")
    await world.client.submit("web:2", "two")
    await world.acting.take("web:2")
    await world.client.submit("web:3", "three")
    await world.acting.answer("web:3", "Hello.")
    await world.client.submit("web:4", "four", delay="1h")
    await world.client.submit("t:1", "five", queue="triage")
    await world.client.submit("t:2", "six", queue="triage")
    await world.client.quarantine("t:2", reason="it hurts")
    await world.client.pause("triage", reason="not yet")
    await register(
        world,
        "a",
        queues=("assistant",),
        activity={"assistant": QueueActivity(sessions=1, recent_turns=6, recent_claims=2)},
        recent_ms=30_000,
    )
    found = await look(world)
    assert (found.sessions, found.running, found.ready) == (6, 1, 2)
    assert (found.timers, found.quarantined) == (1, 1)
    assert (found.turns_per_minute, found.claims_per_minute, found.takeovers_per_minute) == (
        12.0,
        4.0,
        0.0,
    )
    assistant, triage = found.queues
    assert (assistant.queue, assistant.state, assistant.ready) == ("assistant", "open", 1)
    assert (assistant.running, assistant.workers, assistant.turns_per_minute) == (1, 1, 12.0)
    assert assistant.oldest_ms is not None and 0 <= assistant.oldest_ms < 60_000
    assert (triage.queue, triage.state, triage.ready, triage.workers) == ("triage", "paused", 1, 0)
    assert triage.paused is not None and triage.paused.reason == "not yet"


async def test_a_worker_that_is_silent_serves_nothing_and_does_nothing(world: World) -> None:
    activity = {"mail": QueueActivity(sessions=3, recent_turns=60)}
    await register(world, "a", age=3, queues=("mail",), activity=activity, recent_ms=60_000)
    await register(world, "b", queues=("mail",), activity=activity, recent_ms=60_000)
    found = await look(world)
    assert [(one.worker, one.state) for one in found.workers] == [("a", "silent"), ("b", "running")]
    (mail,) = found.queues
    assert (mail.running, mail.workers, mail.turns_per_minute) == (6, 1, 60.0)


async def test_each_primary_is_named_with_its_memory(world: World) -> None:
    if world.url is None:
        pytest.skip("fakeredis has no memory")
    found = await look(world)
    assert len(found.servers) == (3 if "cluster" in world.url else 1)
    for server in found.servers:
        assert (server.error, server.role) == (None, "master")
        assert server.used_bytes > 0 and server.version.split()[0] in ("redis", "valkey")


async def test_a_span_of_nothing_is_refused_at_once(world: World) -> None:
    with pytest.raises(Invalid, match="every"):
        world.client.watch(every="0s")


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    """A fleet of as many partitions as fleets have, on fakeredis."""
    async with stores_on(
        fake_executor(fakeredis.FakeServer()), small_settings(partitions=64)
    ) as found:
        yield found


async def test_a_look_costs_the_same_however_many_sessions_there_are(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/queues.md says of it, beside one INFO for each primary."""
    watch = Watch(stores.producer, small_settings(partitions=64))
    info = WorkerInfo(worker="w", incarnation="w:1", queues=("a", "b"), renewed_at_ms=1)
    await stores.worker.register("w:1", info)

    async def commands() -> int:
        with asking(stores.executor) as asked:
            await watch.look()
        return sum(len(sent) for sent in asked)

    partitions, queues, always = 64, 2, 2
    rush, quiet = partitions * (1 + queues), partitions * (4 + queues)
    assert await commands() == always + partitions + rush + quiet
    assert await commands() == always + rush

    ready = [
        ("ZADD", at.ready("a@1"), 0, f"s:{n}") for n in range(50) for at in stores.producer.keys.all
    ]
    await stores.executor.commands(ready)
    assert await commands() == always + rush
    watch._quiet_at -= QUIET_EVERY_S
    assert await commands() == always + rush + quiet + 2 * partitions
    watch._routes_at -= ROUTES_EVERY_S
    assert await commands() == always + partitions + rush
