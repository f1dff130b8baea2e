"""A Cluster whose slots move and whose masters die: calls find their way, or say that they could
not. What a server did not run is sent on; nothing runs twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress

import pytest

from changeover_shared._errors import StoreUnavailable
from changeover_shared._store.barrier import Need
from changeover_shared._store.executor import Executor
from changeover_shared._store.keys import Keys
from changeover_shared._store.records import Create, Submit, Submitted
from changeover_shared._store.slots import slot_of
from changeover_shared._store.sync_store import SyncStore
from tests.support.cluster import ClusterNode, RunningCluster, SlotMove, running_cluster
from tests.support.driving import ROUTE, SESSION, Driver
from tests.support.fleet import Stores, small_settings, stores_on
from tests.support.servers import running_server

SETTINGS = small_settings(partitions=8)


def message(id: str, session: str = SESSION) -> Submit:
    return Submit(session, id, f"d:{id}", "turn", "body", Create(ROUTE, "assistant"))


@pytest.fixture(scope="module")
def whole() -> Iterator[RunningCluster]:
    with running_cluster(node_timeout_ms=60_000) as found:
        yield found


@pytest.fixture
def cluster(whole: RunningCluster) -> RunningCluster:
    whole.flush()
    return whole


@pytest.fixture
async def stores(cluster: RunningCluster) -> AsyncIterator[Stores]:
    async with stores_on(await Executor.connect(cluster.url), SETTINGS) as found:
        yield found


@pytest.fixture
def drive(stores: Stores) -> Driver:
    return Driver(stores)


@pytest.fixture
def move(cluster: RunningCluster, drive: Driver) -> Iterator[SlotMove]:
    """The session's slot on its way to another master; it is there at the end."""
    source = cluster.master_of(drive.key("head"))
    target = next(one for one in cluster.masters() if one is not source)
    moving = cluster.move(source, target, slot_of(drive.key("head")))
    yield moving
    while moving.take(100):
        pass
    moving.finish()


async def test_each_partition_is_served_by_the_master_of_its_slot(
    stores: Stores, cluster: RunningCluster
) -> None:
    for i in range(30):
        await stores.producer.submit(message("m", f"web:{i}"))
    for i in range(30):
        key = stores.producer.keys.of(f"web:{i}").session(f"web:{i}", "head")
        assert cluster.master_of(key).client.hget(key, "status") == "ready"
    sizes = await stores.executor.on_every_primary("DBSIZE")
    assert len(sizes) == 3
    assert min(sizes.values()) > 0


async def test_a_batch_over_all_masters_is_answered_in_order(stores: Stores) -> None:
    batch = [message(f"m{i}", f"web:{i % 20}") for i in range(200)]
    answers = await stores.producer.submit_all(batch)
    assert [answer.n for answer in answers if isinstance(answer, Submitted)] == [
        1 + i // 20 for i in range(200)
    ]


async def test_a_slot_that_has_moved_is_found_although_the_map_is_old(
    stores: Stores, drive: Driver, move: SlotMove
) -> None:
    """MOVED; and the new master has not seen the script."""
    await stores.producer.submit(message("m1"))
    move.target.client.script_flush()
    move.begin()
    while move.take(100):
        pass
    move.finish()
    answer = await stores.producer.submit(message("m2"))
    assert isinstance(answer, Submitted)
    assert (answer.word, answer.n) == ("ACCEPTED", 2)
    assert await drive.redis("HGET", drive.shared("meta"), "epoch") == "2", "another history"


async def test_keys_that_are_on_their_way_are_asked_for_where_they_are(
    stores: Stores, drive: Driver, move: SlotMove
) -> None:
    """ASK: all keys of a script have moved, the slot has not."""
    await stores.producer.submit(message("m1"))
    move.target.client.script_flush()
    move.begin()
    while move.take(100):
        pass
    assert await drive.status() == "ready"
    assert await stores.producer.submissions([(SESSION, "m1")]) != [None]


async def test_a_script_whose_keys_are_torn_apart_waits_until_they_are_together(
    stores: Stores, drive: Driver, move: SlotMove
) -> None:
    """Hole 1: TRYAGAIN; nothing was written, and the same id is accepted once afterwards."""
    await stores.producer.submit(message("m1"))
    move.begin()
    move.take_keys([drive.key("inbox")])
    with pytest.raises(StoreUnavailable, match="TRYAGAIN"):
        await stores.producer.submit(message("m2"), timeout_s=0.2)
    head = move.source.client.hgetall(drive.key("head"))
    assert head["n"] == "1"
    submitting = asyncio.create_task(stores.producer.submit(message("m2"), timeout_s=20))
    while move.take(100):
        pass
    move.finish()
    answer = await submitting
    assert isinstance(answer, Submitted)
    assert (answer.word, answer.n) == ("ACCEPTED", 2)


async def test_a_blocking_read_follows_its_slot(
    stores: Stores, drive: Driver, move: SlotMove
) -> None:
    await stores.producer.submit(message("m1"))
    seq = int((await drive.head())["seq"])
    reading = asyncio.create_task(stores.producer.wait_journal(SESSION, after=seq, block_ms=60_000))
    await until_blocked(move.source)
    move.begin()
    while move.take(100):
        pass
    move.finish()
    await drive.submit("m2", kind="message", detail='{"text":"hello"}')
    events = await reading
    assert [event.seq for event in events] == [seq + 1]


async def test_a_blocking_read_of_a_key_on_its_way_waits_where_the_key_is(
    stores: Stores, drive: Driver, move: SlotMove
) -> None:
    """ASK, which a bell that nobody has rung is answered with for as long as its slot moves."""
    await stores.producer.submit(message("m1"))
    seq = int((await drive.head())["seq"])
    move.begin()
    while move.take(100):
        pass
    reading = asyncio.create_task(stores.producer.wait_journal(SESSION, after=seq, block_ms=60_000))
    await until_blocked(move.target)
    move.finish()
    await drive.submit("m2", kind="message", detail='{"text":"hello"}')
    assert [event.seq for event in await reading] == [seq + 1]


def test_the_synchronous_store_waits_where_a_key_is_as_well(cluster: RunningCluster) -> None:
    with closing(SyncStore.open(cluster.url, SETTINGS)) as store:
        store.submit(message("m1"))
        key = store.keys.of(SESSION).session(SESSION, "head")
        source = cluster.master_of(key)
        target = next(one for one in cluster.masters() if one is not source)
        seq = int(source.client.hget(key, "seq") or 0)
        moving = cluster.move(source, target, slot_of(key))
        moving.begin()
        while moving.take(100):
            pass
        assert store.wait_journal(SESSION, after=seq, block_ms=1) == ()
        moving.finish()


async def test_a_barrier_whose_slot_is_on_its_way_confirms_nothing(
    stores: Stores, drive: Driver, move: SlotMove
) -> None:
    """MOVED and ASK are no reason to call the server unfit: what was written is asked for again."""
    await stores.producer.submit(message("m1"))
    need, barrier = Need("replica", 0, 1000), drive.shared("barrier")
    ((_, before),) = await stores.executor.confirmed([barrier], need)
    assert before
    move.begin()
    while move.take(100):
        pass
    assert await stores.executor.confirmed([barrier], need) == [(0, "")], "ASK"
    move.finish()
    ((_, after),) = await stores.executor.confirmed([barrier], need)
    assert after in ("", move.target.info("replication")["master_replid"])
    ((_, at_last),) = await stores.executor.confirmed([barrier], need)
    assert at_last == move.target.info("replication")["master_replid"] != before


def test_the_synchronous_store_finds_its_way_as_well(cluster: RunningCluster) -> None:
    with closing(SyncStore.open(cluster.url, SETTINGS)) as store:
        for i in range(20):
            store.submit(message("m1", f"web:{i}"))
        key = store.keys.of("web:7").session("web:7", "head")
        source = cluster.master_of(key)
        target = next(one for one in cluster.masters() if one is not source)
        moving = cluster.move(source, target, slot_of(key))
        moving.begin()
        while moving.take(100):
            pass
        assert store.submissions([("web:7", "m1")]) != [None], "asked for where it is"
        moving.finish()
        answer = store.submit(message("m2", "web:7"))
        assert isinstance(answer, Submitted)
        assert answer.n == 2


async def test_a_dead_master_stops_its_own_partitions_only() -> None:
    with running_cluster(
        args=["--cluster-require-full-coverage", "no"], node_timeout_ms=1000
    ) as cluster:
        async with stores_on(await Executor.connect(cluster.url), SETTINGS) as stores:
            sessions = [f"web:{i}" for i in range(30)]
            dead = cluster.master_of(head_of(stores, sessions[0]))
            theirs = [one for one in sessions if cluster.master_of(head_of(stores, one)) is dead]
            cluster.kill(dead)
            answers = await stores.producer.submit_all(
                [message("m1", one) for one in sessions], timeout_s=2
            )
            refused = [
                one
                for one, answer in zip(sessions, answers, strict=True)
                if isinstance(answer, StoreUnavailable)
            ]
            assert refused == theirs
            assert theirs != sessions


async def test_what_names_no_key_is_asked_of_a_master_that_answers() -> None:
    """A dead master keeps nobody from joining, and no worker from renewing what is elsewhere."""
    with running_cluster(node_timeout_ms=60_000) as cluster:
        first = cluster.master_of("{06S}")  # slot 0: the first one of every map
        keys = next(
            keys
            for keys in (Keys(f"f{i}", 4) for i in range(100))
            if cluster.master_of(keys.config) is not first is not cluster.master_of(keys.secret)
        )
        settings = small_settings(prefix=keys.prefix)
        async with stores_on(await Executor.connect(cluster.url), settings) as stores:
            cluster.kill(first)
            with suppress(StoreUnavailable):
                await stores.producer.read_time()
            assert await stores.producer.read_time()
            async with stores_on(await Executor.connect(cluster.url), settings) as later:
                assert await later.producer.read_time()
            with closing(SyncStore.open(cluster.url, settings)) as store:
                assert store.read_time()


async def test_a_promoted_replica_takes_over_and_begins_an_epoch() -> None:
    with running_cluster(replicas=1, node_timeout_ms=1000) as cluster:
        async with stores_on(await Executor.connect(cluster.url), SETTINGS) as stores:
            drive = Driver(stores)
            await stores.producer.submit(message("m1"))
            dead = cluster.master_of(drive.key("head"))
            replica = cluster.replica_of(dead)
            replica.until_it_has_all_of(dead)
            cluster.kill(dead)
            cluster.until_promoted(replica)
            answer = await stores.producer.submit(message("m2"), timeout_s=20)
            assert isinstance(answer, Submitted)
            assert (answer.word, answer.n) == ("ACCEPTED", 2)
            assert await drive.redis("HGET", drive.shared("meta"), "epoch") == "2"
            assert stores.executor.changes == 1, "another server, and people are told so"


async def test_a_master_that_the_others_have_lost_is_not_believed_for_ever() -> None:
    """It answers, with a map of old, and serves nothing."""
    with running_cluster(replicas=1) as cluster:
        lost = cluster.masters()[0]
        replica = cluster.replica_of(lost)
        others = [node for node in cluster.nodes if node is not lost]
        url = "redis+cluster://" + ",".join(node.address for node in (lost, *others))
        async with stores_on(await Executor.connect(url), SETTINGS) as stores:
            producer = stores.producer
            session = next(
                name
                for name in map("web:{}".format, range(1000))
                if cluster.master_of(producer.keys.of(name).session(name, "head")) is lost
            )
            await producer.submit(message("m1", session))
            cluster.kill(lost)
            cluster.until_promoted(replica)
            lost.start_apart()
            answer = await producer.submit(message("m2", session), timeout_s=20)
            assert isinstance(answer, Submitted)
            async with stores_on(await Executor.connect(url), SETTINGS) as later:
                answer = await later.producer.submit(message("m3", session), timeout_s=20)
                assert isinstance(answer, Submitted)


async def test_nobody_who_answers_is_no_answer() -> None:
    with running_cluster() as cluster:
        async with stores_on(await Executor.connect(cluster.url), SETTINGS) as stores:
            for node in cluster.nodes:
                cluster.kill(node)
            with pytest.raises(StoreUnavailable):
                await stores.producer.submit(message("m1"), timeout_s=1)


async def test_a_server_alone_says_that_a_cluster_was_asked_for() -> None:
    with running_server("redis") as url:
        executor = await Executor.connect(url.replace("redis://", "redis+cluster://"))
        with pytest.raises(StoreUnavailable, match="cluster support disabled"):
            await executor.command("GET", "k")
        await executor.aclose()


def head_of(stores: Stores, session: str) -> str:
    return stores.producer.keys.of(session).session(session, "head")


async def until_blocked(node: ClusterNode) -> None:
    for _ in range(2000):
        if node.info("clients")["blocked_clients"]:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("nobody waits there")
