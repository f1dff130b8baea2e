"""What a write waits for: the primary's memory, its disk, its replicas.

Source: redis.io/commands/wait and /waitaof; answer f of the protocol.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest

from changeover_shared._errors import NotDurable, ServerUnfit
from changeover_shared._settings import Durability, Settings
from changeover_shared._store.executor import Executor
from changeover_shared._store.fleet import Confirmation, Fleet
from changeover_shared._store.keys import PartitionKeys
from changeover_shared._store.records import Commit, Committed, Create, Submit, Submitted
from changeover_shared._store.requests import Request
from changeover_shared._store.store import Store
from changeover_shared._store.sync_store import SyncStore
from changeover_shared._words import CommitKind
from tests.support.driving import ROUTE, SESSION, TTL_MS, Driver
from tests.support.fleet import Stores, small_settings, stores_on
from tests.support.nodes import Node, running_node
from tests.support.processes import wait_until
from tests.support.sentinel import RunningSentinel, running_sentinel
from tests.support.servers import running_server

NO_FAILOVER_MS = 60_000


def message(id: str = "m1", durability: Durability | None = None) -> Submit:
    create = Create(ROUTE, "assistant")
    return Submit(SESSION, id, f"d:{id}", "turn", "body", create, durability=durability)


@pytest.fixture(scope="module")
def group() -> Iterator[RunningSentinel]:
    with running_sentinel(replicas=1, down_after_ms=NO_FAILOVER_MS) as found:
        yield found


@pytest.fixture
def replica(group: RunningSentinel) -> Node:
    group.flush()
    (found,) = group.replicas()
    found.until_it_has_all_of(group.primary())
    return found


@asynccontextmanager
async def fleet_on(url: str, **given: Any) -> AsyncIterator[Stores]:
    async with stores_on(await Executor.connect(url), small_settings(**given)) as stores:
        yield stores


async def waits(stores: Stores) -> int:
    """How often the primary was asked to wait for its replicas."""
    (info,) = (await stores.executor.on_every_primary("INFO", "commandstats")).values()
    found = [line for line in info.decode().splitlines() if line.startswith("cmdstat_wait:")]
    return int(found[0].partition("calls=")[2].partition(",")[0]) if found else 0


async def test_what_waits_for_memory_asks_for_nothing_more(
    group: RunningSentinel, replica: Node
) -> None:
    async with fleet_on(group.url) as stores:
        before = await waits(stores)
        answer = await stores.producer.submit(message())
        assert isinstance(answer, Submitted)
        assert await waits(stores) == before


async def test_a_submission_counts_once_the_replica_has_it(
    group: RunningSentinel, replica: Node
) -> None:
    async with fleet_on(group.url, durability="replica") as stores:
        before = await waits(stores)
        await stores.producer.submit(message())
        assert await waits(stores) == before + 1
        key = stores.producer.keys.of(SESSION).session(SESSION, "receipts")
        assert replica.client.hexists(key, "m1")
        barrier = stores.producer.keys.of(SESSION).named("barrier")
        written = await stores.executor.command("GET", barrier)
        assert written == b"1", "WAIT promises something for what its connection wrote"


async def test_submissions_of_one_tick_share_a_barrier(
    group: RunningSentinel, replica: Node
) -> None:
    async with fleet_on(group.url, durability="replica") as stores:
        before = await waits(stores)
        batch = [message(f"m{i}") for i in range(50)]
        answers = await stores.producer.submit_all(batch)
        assert all(isinstance(answer, Submitted) for answer in answers)
        assert await waits(stores) == before + 1


async def test_without_a_confirmation_it_is_accepted_and_not_durable(
    group: RunningSentinel, replica: Node
) -> None:
    """Hole 26: the count is checked, and a repeat (a duplicate) waits as well."""
    async with fleet_on(group.url, durability="replica", durability_timeout="50ms") as stores:
        with replica.frozen():
            for _ in range(2):
                with pytest.raises(NotDurable) as refusal:
                    await stores.producer.submit(message())
                assert (refusal.value.submission_id, refusal.value.confirmed) == ("m1", 0)
                assert "0 of 1 replicas confirmed within 50 ms" in str(refusal.value)
            assert await stores.producer.submissions([(SESSION, "m1")]) != [None]
            bell = stores.producer.keys.bell(ROUTE)
            assert await stores.executor.command("ZCARD", bell) == 1, "it was rung for"
        replica.until_it_has_all_of(group.primary())
        answer = await stores.producer.submit(message())
        assert isinstance(answer, Submitted)
        assert answer.word == "DUPLICATE"


async def test_one_submission_may_ask_for_more_than_its_process_and_for_less(
    group: RunningSentinel, replica: Node
) -> None:
    async with fleet_on(group.url, durability_timeout="50ms") as stores:
        with replica.frozen():
            await stores.producer.submit(message("m1"))
            with pytest.raises(NotDurable):
                await stores.producer.submit(message("m2", "replica"))
    async with fleet_on(group.url, durability="replica", durability_timeout="50ms") as stores:
        with replica.frozen():
            await stores.producer.submit(message("m3", "memory"))


def test_the_synchronous_store_waits_as_well(group: RunningSentinel, replica: Node) -> None:
    settings = small_settings(durability="replica", durability_timeout="50ms")
    with closing(SyncStore.open(group.url, settings)) as store:
        store.submit(message("m1"))
        with replica.frozen(), pytest.raises(NotDurable):
            store.submit(message("m2"))


async def test_controls_and_deletions_wait_as_well(group: RunningSentinel, replica: Node) -> None:
    async with fleet_on(group.url, durability="replica", durability_timeout="50ms") as stores:
        for name in ("m1", "m2"):
            await stores.producer.submit(message(name))
        with replica.frozen():
            with pytest.raises(NotDurable, match="it was done"):
                await stores.producer.cancel(SESSION, "m1")
            with pytest.raises(NotDurable, match="it was done"):
                await stores.producer.upkeep.delete(SESSION)


async def test_an_interrupt_waits_also_where_it_joins_another(
    group: RunningSentinel, replica: Node
) -> None:
    async with fleet_on(group.url, durability="replica", durability_timeout="50ms") as stores:
        drive = Driver(stores)
        await stores.producer.submit(message())
        await stores.worker.commit(await held(drive), commit_of("k1", 0, False))
        create = Create(ROUTE, "assistant")
        for name in ("i1", "i2"):
            asked = Submit(SESSION, name, f"d:{name}", "ctl", "body", create, may_create=False)
            with replica.frozen(), pytest.raises(NotDurable):
                await stores.producer.submit(asked)
        (joined,) = await stores.producer.submissions([(SESSION, "i2")])
        assert joined is not None
        assert joined.ending is not None, "settled at once, and yet it waits"


async def test_a_commit_that_allows_effects_waits_until_the_replica_has_it(
    group: RunningSentinel, replica: Node
) -> None:
    """Hole 27: the tool starts behind this commit."""
    async with fleet_on(group.url, durability="replica", durability_timeout="50ms") as stores:
        drive = Driver(stores)
        await drive.submit("m1")
        lease = await held(drive)
        told: list[str] = []
        stores.worker.on_lost = told.append
        with replica.frozen():
            writing = asyncio.create_task(stores.worker.commit(lease, commit_of("k1", 0, True)))
            await until(lambda: bool(told))
            assert not writing.done()
            assert await drive.redis("HGET", drive.key("head"), "rev") == "1", "it is written"
        assert isinstance(await writing, Committed)
        assert "0 of 1 replicas" in told[0]


async def test_a_commit_is_asked_again_of_the_server_that_replaced_the_one_which_took_it(
    group: RunningSentinel, replica: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hole 27: however many confirm it there, they may confirm a history without it."""
    async with fleet_on(group.url) as stores:
        drive = Driver(stores)
        await drive.submit("m1")
        lease = await held(drive)
        call, asked, confirmed = stores.worker._fleet.call, 0, 0

        async def counting(request: Request) -> list[Any]:
            nonlocal asked
            asked += 1
            return await call(request)

        async def replaced_at_first(
            fleet: Fleet, marks: Mapping[PartitionKeys, str], durability: Durability
        ) -> dict[PartitionKeys, Confirmation]:
            nonlocal confirmed
            confirmed += 1
            return {one: Confirmation(confirmed > 1, True, 1, 1) for one in marks}

        monkeypatch.setattr(stores.worker._fleet, "call", counting)
        monkeypatch.setattr(Fleet, "confirm", replaced_at_first)
        answer = await stores.worker.commit(lease, commit_of("k1", 0, True))
        assert isinstance(answer, Committed)
        assert (asked, confirmed) == (2, 2)


async def test_a_commit_that_allows_nothing_does_not_wait(
    group: RunningSentinel, replica: Node
) -> None:
    async with fleet_on(group.url, durability="replica", durability_timeout="50ms") as stores:
        drive = Driver(stores)
        await drive.submit("m1")
        lease = await held(drive)
        with replica.frozen():
            answer = await stores.worker.commit(lease, commit_of("k1", 0, False))
        assert isinstance(answer, Committed)


async def test_a_failover_between_a_write_and_its_barrier_confirms_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The write is forgotten, and asked for again from the server that is there now."""
    with running_sentinel(replicas=1) as group:
        async with fleet_on(group.url, durability="replica") as stores:
            await stores.producer.submit(message("m0"))
            (replica,), primary = group.replicas(), group.primary()
            replica.until_it_has_all_of(primary)
            confirm, times = Fleet.confirm, 0

            async def fail_over_first(
                fleet: Fleet, marks: Mapping[PartitionKeys, str], durability: Durability
            ) -> dict[PartitionKeys, Confirmation]:
                nonlocal times
                times += 1
                if times == 1:
                    primary.kill()
                    thaw.set()
                    await asyncio.to_thread(group.until_promoted, primary)
                    primary.start_again()
                    await asyncio.to_thread(group.until_ok)
                return await confirm(fleet, marks, durability)

            monkeypatch.setattr(Fleet, "confirm", fail_over_first)
            thaw = asyncio.Event()

            async def freeze_until_the_primary_is_gone() -> None:
                with replica.frozen():
                    # What its socket holds already, it would still read.
                    primary.client.client_kill_filter(_type="replica")
                    frozen.set()
                    await thaw.wait()

            frozen = asyncio.Event()
            freezing = asyncio.create_task(freeze_until_the_primary_is_gone())
            await frozen.wait()
            answer = await stores.producer.submit(message("m1"), timeout_s=20)
            await freezing
            assert isinstance(answer, Submitted)
            assert answer.word == "ACCEPTED", "the first one was forgotten"
            assert times > 1
            assert await stores.producer.submissions([(SESSION, "m1")]) != [None]


@pytest.mark.parametrize("args", [("--appendonly", "no"), ("--appendonly", "yes")])
async def test_a_server_that_cannot_say_what_its_disk_has_is_refused_at_the_start(
    args: tuple[str, str],
) -> None:
    """Hole 28: WAITAOF is unknown to Redis 7.0."""
    with running_server("redis", args) as url, pytest.raises(ServerUnfit, match="fsync needs"):
        async with fleet_on(url, durability="fsync"):
            pass


async def test_a_server_that_writes_to_its_disk_first_needs_no_asking() -> None:
    with running_server("redis", ["--appendonly", "yes", "--appendfsync", "always"]) as url:
        async with fleet_on(url, durability="fsync") as stores:
            assert isinstance(await stores.producer.submit(message()), Submitted)


@pytest.mark.parametrize("open_store", [Store.open, SyncStore.open])
async def test_whether_a_server_writes_to_its_disk_first_is_asked_again_of_another(
    open_store: Any,
) -> None:
    """Hole 28: the server may have come back with other settings."""
    always = ["--appendonly", "yes", "--appendfsync", "always"]
    with running_node("redis", always) as server:
        store = open_store(server.url, small_settings(durability="fsync"))
        store = await settled(store)
        try:
            await settled(store.submit(message()))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start_again)
            server.client.config_set("appendfsync", "everysec")
            with pytest.raises(ServerUnfit, match="fsync needs"):
                await settled(store.submit(message("m2")))
        finally:
            close = store.close if isinstance(store, SyncStore) else store.aclose
            await settled(close())


async def settled(answer: Any) -> Any:
    """What either store answers."""
    return await answer if inspect.isawaitable(answer) else answer


async def test_a_submission_counts_once_the_disk_has_it() -> None:
    with running_server("valkey", ["--appendonly", "yes", "--appendfsync", "everysec"]) as url:
        async with fleet_on(url, durability="fsync", durability_timeout="5s") as stores:
            assert isinstance(await stores.producer.submit(message()), Submitted)
            (info,) = (await stores.executor.on_every_primary("INFO", "commandstats")).values()
            assert b"cmdstat_waitaof:calls=2," in info, "once at the start, once for it"
            await stores.executor.command("CONFIG", "SET", "appendonly", "no")
            with pytest.raises(ServerUnfit, match="WAITAOF"):
                await stores.producer.submit(message("m2"))


async def held(drive: Driver) -> Any:
    answers = await drive.stores.worker.claim(
        drive.partition.partition,
        ROUTE,
        [SESSION],
        incarnation="w1:aa",
        nonce="nonce",
        ttl_ms=TTL_MS,
        max_step_ms=TTL_MS,
        not_after_ms=await drive.now() + TTL_MS,
    )
    return answers[0].lease  # type: ignore[union-attr]


def commit_of(commit_id: str, rev: int, durable: bool) -> Commit:
    return Commit(commit_id, rev, "t_1", CommitKind.START, "state", take=(1,), durable=durable)


async def until(so: Any) -> None:
    await asyncio.to_thread(wait_until, so, "it to be said")


def test_what_is_said_of_a_disk() -> None:
    settings = Settings(durability="fsync")
    error = NotDurable(
        durability=settings.durability,
        confirmed=0,
        needed=1,
        waited=settings.durability_timeout,
        submission_id="m1",
    )
    assert str(error) == (
        "accepted; 0 of 1 disks confirmed within 500 ms, until then a failover may forget it; "
        "submitting again with id 'm1' is safe and waits anew"
    )
