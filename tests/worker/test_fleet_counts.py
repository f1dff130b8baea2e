"""What any worker shows of the whole fleet, counted by the one that leads the sweep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from changeover import Client, Operator
from changeover._acl import acl_user
from changeover_shared._store.census import FIRST, FleetCount, Waiting
from changeover_shared._store.lease_store import LeaseStore
from changeover_worker import Agent, App
from changeover_worker._process import counted_fleet, counting
from changeover_worker._process.counted_fleet import OTHERS
from changeover_worker._process.meters import Meters
from changeover_worker.testing import ScriptedModel, say
from tests.support.nodes import Node, running_node
from tests.support.probing import ask, samples
from tests.support.working import Working, eventually, own_fleet, working

ANYWHERE = "127.0.0.1:0"


@pytest.fixture(scope="module")
def server() -> Iterator[Node]:
    with running_node(args=["--maxmemory", "200mb", "--maxmemory-policy", "noeviction"]) as server:
        yield server


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "EVERY_S", 0.1)
    monkeypatch.setattr(counted_fleet, "READ_S", 0.1)


APP = App(
    agents=[Agent("assistant", model="main")], models={"main": ScriptedModel.always(say("done"))}
)


async def scraped(at: Working) -> dict[str, float]:
    (listening,) = await at.has_logged("health_listening")
    reply = await asyncio.to_thread(ask, str(listening["bind"]), "/metrics")
    return samples(reply.text)


async def until(at: Working, name: str, value: float) -> dict[str, float]:
    """Scrape until a sample has a value."""
    deadline = time.monotonic() + 20
    while (found := await scraped(at)).get(name) != value:
        assert time.monotonic() < deadline, f"{name} is {found.get(name)}"
        await asyncio.sleep(0.05)
    return found


async def test_every_worker_shows_what_waits_also_where_nobody_serves(server: Node) -> None:
    settings = own_fleet(health_bind=ANYWHERE)
    async with Operator(server.url, settings=settings) as operator:
        for n in range(5):
            await operator.submit(f"s:{n}", "hello", agent="nobody")
        async with (
            working(APP, settings, server.url, name="a") as a,
            working(APP, settings, server.url, name="b") as b,
        ):
            outcome = await operator.run("s:done", "hello", agent="assistant", timeout="30s")
            assert outcome.text == "done"
            await operator.quarantine("s:4", reason="it hurts")
            for one in (a, b):
                await until(one, "quarantined", 1)
                found = await until(one, 'queue_ready{queue="nobody"}', 4)
                found = await until(one, 'sessions{queue="assistant",status="idle"}', 1)
                assert found['sessions{queue="nobody",status="ready"}'] == 4
                assert found['sessions{queue="nobody",status="quarantined"}'] == 1
                assert found['queue_ready{queue="assistant"}'] == 0
                assert found['queue_oldest_ready_seconds{queue="assistant"}'] == 0
                assert 0 < found['queue_oldest_ready_seconds{queue="nobody"}'] < 60
                (share,) = [found[name] for name in found if name.startswith("redis_memory_ratio")]
                assert 0 < share < 0.5
                before = found['queue_oldest_ready_seconds{queue="nobody"}']
                await asyncio.sleep(0.2)
                after = (await scraped(one))['queue_oldest_ready_seconds{queue="nobody"}']
                assert after > before


async def test_somebody_else_counts_on_when_the_leader_is_gone(server: Node) -> None:
    settings = own_fleet(health_bind=ANYWHERE, lease="3s", renew="500ms", margin="300ms")
    async with Client(server.url, settings=settings) as client:
        async with working(APP, settings, server.url, name="a") as a:
            await until(a, "quarantined", 0)
        async with working(APP, settings, server.url, name="b") as b:
            await client.submit("s:1", "hello", agent="nobody")
            await until(b, 'queue_ready{queue="nobody"}', 1)


def shown(meters: Meters) -> list[str]:
    """What is shown of the fleet."""
    found = samples(meters.page().decode())
    return [name for name in found if name.startswith(("queue_", "fleet_", "quarantined"))]


def test_what_is_old_is_not_shown() -> None:
    meters = Meters()
    count = FleetCount(at_ms=1_000_000, waiting={"a": Waiting(count=3, since_ms=990_000)})
    meters.fleet.saw(count, 1_005_000)
    found = samples(meters.page().decode())
    assert found['queue_ready{queue="a"}'] == 3
    assert found['queue_oldest_ready_seconds{queue="a"}'] == pytest.approx(15, abs=0.5)
    assert found["fleet_counted_seconds"] == pytest.approx(5, abs=0.5)
    assert "sessions_counted_seconds" not in found
    meters.fleet.saw(count, 1_000_000 + counted_fleet.STALE_MS + 1000)
    assert not any(
        name.startswith(("queue_", "fleet_")) for name in samples(meters.page().decode())
    )
    meters.fleet.saw(None, 0)
    assert not any(
        name.startswith(("queue_", "fleet_")) for name in samples(meters.page().decode())
    )


def test_of_very_many_queues_the_small_ones_are_one() -> None:
    meters = Meters()
    waiting = {f"q{n}": Waiting(count=n, since_ms=1000) for n in range(counted_fleet.QUEUES + 3)}
    sessions = {"q1": {"idle": 7}, "q0": {"idle": 1}}
    meters.fleet.saw(FleetCount(at_ms=2000, waiting=waiting, sessions=sessions), 2000)
    found = samples(meters.page().decode())
    assert sum(name.startswith("queue_ready") for name in found) == counted_fleet.QUEUES + 1
    assert found[f'queue_ready{{queue="{OTHERS}"}}'] == 0 + 1 + 2
    assert found[f'queue_oldest_ready_seconds{{queue="{OTHERS}"}}'] == pytest.approx(1, abs=0.5)


async def test_what_waits_longest_is_found_among_those_that_are_granted_next(
    server: Node,
) -> None:
    settings = own_fleet(partitions=1)
    store = await LeaseStore.open(server.url, settings)
    try:
        async with Client(server.url, settings=settings) as client:
            began_ms = await store.read_time()
            await client.submit("s:first", "hello", agent="nobody")
            later_ms = await store.read_time()
            while await store.read_time() == later_ms:
                pass
            for n in range(FIRST + 5):
                await client.submit(f"s:{n}", "hello", agent="nobody")
        waiting, quarantined = await store.census.waiting()
        assert (waiting["nobody"].count, quarantined) == (FIRST + 6, 0)
        assert began_ms <= waiting["nobody"].since_ms <= later_ms
    finally:
        await store.aclose()


async def test_a_user_of_redis_that_may_not_count_is_told_of_and_the_sweep_goes_on(
    server: Node,
) -> None:
    settings = own_fleet(health_bind=ANYWHERE)
    user = acl_user("worker", settings.prefix)
    older = [rule for rule in user.rules if "census" not in rule]
    assert len(older) == len(user.rules) - 1
    store = await LeaseStore.open(server.url, settings)
    await store.executor.command("ACL", "SETUSER", user.user, *older, ">secret")
    await store.aclose()
    url = f"redis://{user.user}:secret@127.0.0.1:{server.port}/0"
    async with (
        Client(server.url, settings=settings) as client,
        working(APP, settings, url) as at,
    ):

        def uncounted() -> list[str]:
            return [one["text"] for one in at.logged("warning") if one["code"] == "uncounted"]

        await eventually(lambda: bool(uncounted()), "it was told of")
        outcome = await client.run("s:1", "hello", agent="assistant", timeout="30s")
        assert outcome.text == "done"
        assert "quarantined" not in await scraped(at)
        (text,) = uncounted()
        assert "NOPERM" in text
