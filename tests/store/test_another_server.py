"""What a connection learns before it is used: whose history it meets, and that it is a primary."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import aclosing, closing

import pytest
from redis.asyncio.connection import AbstractConnection as AsyncConnection
from redis.connection import AbstractConnection

from changeover_shared._errors import StoreUnavailable
from changeover_shared._store.executor import Executor
from changeover_shared._store.fleet import Fleet
from changeover_shared._store.records import Create, Submit
from changeover_shared._store.replication import History
from changeover_shared._store.requests import Request, submit
from changeover_shared._store.scripts import script
from changeover_shared._store.store import Store
from changeover_shared._store.sync_executor import SyncExecutor
from changeover_shared._store.sync_fleet import SyncFleet
from changeover_shared._store.sync_store import SyncStore
from tests.support.driving import ROUTE, SESSION, Driver
from tests.support.fleet import small_settings, stores_on
from tests.support.nodes import running_node
from tests.support.proxy import proxy_before
from tests.support.sentinel import running_sentinel
from tests.support.servers import SERVERS, free_port, running_server

AOF = ("--appendonly", "yes", "--appendfsync", "always")
SETTINGS = small_settings()


def message(id: str) -> Submit:
    return Submit(SESSION, id, f"d:{id}", "turn", "body", Create(ROUTE, "assistant"))


def request(id: str, fleet: Fleet | SyncFleet) -> Request:
    """One attempt at a submission."""
    not_after_ms = fleet.clock.now_ms() + 60_000
    return submit(fleet.keys, SETTINGS, message(id), route=ROUTE, not_after_ms=not_after_ms)


@pytest.mark.parametrize("kind", SERVERS)
async def test_the_first_write_after_a_restart_begins_an_epoch(kind: str) -> None:
    """Hole 30: no request that claims to know the old server reaches the new one."""
    with running_node(kind, AOF) as server:
        async with stores_on(await Executor.connect(server.url), SETTINGS) as stores:
            drive = Driver(stores)
            await stores.producer.submit(message("m1"))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start_again)
            # Or the new server would ask for the script, and so for another attempt.
            server.client.script_load(script("submit").text)
            await stores.producer.submit(message("m2"))
            assert await drive.redis("HGET", drive.shared("meta"), "epoch") == "2"
            assert (await drive.head())["n"] == "2"
            assert stores.executor.changes == 1


async def test_a_worker_is_told_why_its_server_is_lost_and_that_it_is_back() -> None:
    """The reason alone: `redis_lost` is read by people, and nothing is there for them to repeat."""
    with running_node("valkey", AOF) as server:
        async with stores_on(await Executor.connect(server.url), SETTINGS) as stores:
            lost, back, noticed = list[str](), list[bool](), asyncio.Event()

            def on_lost(reason: str) -> None:
                lost.append(reason)
                noticed.set()

            stores.worker.on_lost, stores.worker.on_back = on_lost, back.append
            await asyncio.to_thread(server.kill)
            asking = asyncio.create_task(stores.worker.evict("nobody"))
            await noticed.wait()
            await asyncio.to_thread(server.start_again)
            assert await asking == 0
        assert (len(lost), back) == (1, [True])
        assert "did not answer" not in lost[0], lost
        assert "try again" not in lost[0], lost


@pytest.mark.parametrize("kind", SERVERS)
def test_the_synchronous_store_begins_an_epoch_as_well(kind: str) -> None:
    with running_node(kind, AOF) as server:
        with closing(SyncStore.open(server.url, SETTINGS)) as store:
            store.submit(message("m1"))
            server.kill()
            server.start_again()
            server.client.script_load(script("submit").text)
            store.submit(message("m2"))
            meta = store.keys.of(SESSION).named("meta")
        assert server.client.hget(meta, "epoch") == "2"


async def test_what_was_on_its_way_when_another_connection_met_the_new_server_is_not_sent_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two requests that know the old server connect at the same time: the first to be answered
    meets another history, and the second one must not take that for its own."""
    meet, connecting, together = History.meet, Counter[str](), asyncio.Event()
    first_connects = asyncio.Event()

    async def meet_together(history: History, connection: AsyncConnection) -> None:
        if history.replid:
            connecting["now"] += 1
            first_connects.set()
            if connecting["now"] == 2:
                together.set()
            await together.wait()
        await meet(history, connection)

    monkeypatch.setattr(History, "meet", meet_together)
    with running_node("valkey", AOF) as server:
        async with stores_on(await Executor.connect(server.url), SETTINGS) as stores:
            await stores.producer.submit(message("m1"))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start_again)
            server.client.script_load(script("submit").text)
            fleet = stores.producer._fleet
            first = asyncio.create_task(fleet.call(request("m2", fleet)))
            await first_connects.wait()
            answers = await asyncio.gather(
                first, fleet.call(request("m3", fleet)), return_exceptions=True
            )
            assert [type(answer) for answer in answers] == [StoreUnavailable, StoreUnavailable]
            head = fleet.keys.of(SESSION).session(SESSION, "head")
            assert server.client.hget(head, "n") == "1"


def test_the_same_with_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    meet, together = History.meet_at_once, threading.Barrier(2, timeout=30)

    def meet_together(history: History, connection: AbstractConnection) -> None:
        if history.replid:
            together.wait()
        meet(history, connection)

    monkeypatch.setattr(History, "meet_at_once", meet_together)
    with running_node("valkey", AOF) as server:
        with closing(SyncStore.open(server.url, SETTINGS)) as store:
            store.submit(message("m1"))
            server.kill()
            server.start_again()
            server.client.script_load(script("submit").text)
            fleet = store._fleet
            with ThreadPoolExecutor(2) as threads:
                asked = [threads.submit(fleet.call, request(name, fleet)) for name in ("m2", "m3")]
                errors = [type(one.exception()) for one in asked]
            assert errors == [StoreUnavailable, StoreUnavailable]
            head = fleet.keys.of(SESSION).session(SESSION, "head")
        assert server.client.hget(head, "n") == "1"


async def test_a_connection_that_was_busy_while_its_server_was_replaced_is_used_no_more() -> None:
    """A primary that was frozen and replaced answers again, and would still take writes."""
    with running_node("redis") as old, running_node("redis") as new, proxy_before(old.url) as proxy:
        async with stores_on(await Executor.connect(proxy.url), SETTINGS) as stores:
            await stores.producer.submit(message("m1"))
            with old.frozen():
                heard = proxy.heard("EVALSHA")
                busy = asyncio.create_task(stores.producer.submit(message("m2")))
                await asyncio.to_thread(proxy.wait_for, "EVALSHA", heard + 1)
                proxy.lead_to(new.url)
                with pytest.raises(StoreUnavailable, match="another server"):
                    await stores.executor.blocking("BZPOPMIN", "k", "1", block_s=1)
            await busy
            await stores.producer.submit(message("m3"))
            drive = Driver(stores)
            assert new.client.hexists(drive.key("receipts"), "m3")
            assert not old.client.hexists(drive.key("receipts"), "m3")


def test_a_thread_that_was_busy_meanwhile_leaves_its_connection_as_well() -> None:
    with running_node("redis") as old, running_node("redis") as new, proxy_before(old.url) as proxy:
        with (
            closing(SyncStore.open(proxy.url, SETTINGS)) as store,
            ThreadPoolExecutor(1) as thread,
        ):
            store.submit(message("m1"))
            with old.frozen():
                heard = proxy.heard("EVALSHA")
                busy = thread.submit(store.submit, message("m2"))
                proxy.wait_for("EVALSHA", heard + 1)
                proxy.lead_to(new.url)
                with pytest.raises(StoreUnavailable, match="another server"):
                    store.wait_journal(SESSION, after=0, block_ms=1)
            busy.result()
            store.submit(message("m3"))
            receipts = store.keys.of(SESSION).session(SESSION, "receipts")
        assert new.client.hexists(receipts, "m3")
        assert not old.client.hexists(receipts, "m3")


async def test_a_replica_is_no_place_to_write_to() -> None:
    """READONLY, before anything is sent to it."""
    with running_sentinel(replicas=1, down_after_ms=60_000) as group:
        (replica,) = group.replicas()
        with pytest.raises(StoreUnavailable, match="replica; use the URL of its primary"):
            await Store.open(replica.url, SETTINGS)
        with pytest.raises(StoreUnavailable, match="replica; use the URL of its primary"):
            SyncStore.open(replica.url, SETTINGS)


async def test_a_primary_that_becomes_a_replica_is_left() -> None:
    """Its open connections answer READONLY; Sentinel names the new one."""
    with running_sentinel(replicas=1) as group:
        async with aclosing(await Store.open(group.url, SETTINGS)) as store:
            await store.submit(message("m1"))
            (replica,) = group.replicas()
            replica.until_it_has_all_of(group.primary())
            group.fail_over()
            answer = await store.submit(message("m2"), timeout_s=20)
            key = store.keys.of(SESSION).session(SESSION, "head")
            assert group.primary().client.hget(key, "n") == "2"
            assert answer is not None


async def test_sentinels_that_are_away_are_no_answer() -> None:
    with running_sentinel(replicas=0, down_after_ms=60_000) as group:
        for sentinel in group.sentinels:
            sentinel.kill()
        with pytest.raises(StoreUnavailable, match="No master found"):
            await Store.open(group.url, SETTINGS)
        with pytest.raises(StoreUnavailable, match="No master found"):
            SyncStore.open(group.url, SETTINGS)


async def test_one_sentinel_that_answers_is_enough() -> None:
    with running_sentinel(replicas=0, down_after_ms=60_000) as group:
        for sentinel in group.sentinels[:2]:
            sentinel.kill()
        async with aclosing(await Store.open(group.url, SETTINGS)) as store:
            await store.submit(message("m1"))


async def test_a_pool_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocking reads have a connection each; one too many says so, and nothing is lost."""
    monkeypatch.setattr("changeover_shared._store.wire.BLOCKING_CONNECTIONS", 2)
    with running_server("redis") as url:
        executor = await Executor.connect(url)
        waiting = [
            asyncio.create_task(executor.blocking("BZPOPMIN", "k", "60", block_s=60))
            for _ in range(2)
        ]
        await blocked(executor, 2)
        with pytest.raises(StoreUnavailable, match="Too many connections"):
            await executor.blocking("BZPOPMIN", "k", "60", block_s=60)
        await executor.command("ZADD", "k", "1", "a", "2", "b")
        assert sorted([(await one)[1] for one in waiting]) == [b"a", b"b"]
        await executor.aclose()


async def test_a_sentinel_that_does_not_answer_is_named_by_its_address() -> None:
    url = f"redis+sentinel://127.0.0.1:{free_port()}/main"
    with pytest.raises(StoreUnavailable) as waiting:
        await Store.open(url, SETTINGS)
    with pytest.raises(StoreUnavailable) as blocking:
        SyncStore.open(url, SETTINGS)
    address = url.split("/")[2]
    for refusal in (waiting, blocking):
        assert f": {address} - network:ConnectionError" in refusal.value.reason
        assert "<" not in refusal.value.reason


def test_more_threads_than_connections_wait_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("changeover_shared._store.sync_wire.MAX_CONNECTIONS", 2)
    with running_node("redis") as server, closing(SyncExecutor.connect(server.url)) as executor:
        executor.command("PING")
        with ThreadPoolExecutor(20) as threads:
            with server.frozen():
                asked = [threads.submit(executor.command, "ECHO", str(i)) for i in range(20)]
                assert not wait(asked, timeout=0.2).done
            assert [one.result() for one in asked] == [str(i).encode() for i in range(20)]
        assert len(server.client.client_list()) <= 2 + 1


async def blocked(executor: Executor, count: int) -> None:
    for _ in range(2000):
        if f"blocked_clients:{count}".encode() in await executor.command("INFO", "clients"):
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"{count} never waited")
