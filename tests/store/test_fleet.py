"""What holds for every script: the guards of the universe, one slot, other servers, releases."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import subprocess
from collections.abc import Collection
from urllib.parse import urlsplit

import pytest

from changeover_shared._errors import FormatTooNew, PartitionMismatch
from changeover_shared._results import WorkerInfo
from changeover_shared._server.connect import sync_client
from changeover_shared._server.url import parse_url
from changeover_shared._settings import read_settings
from changeover_shared._store.executor import Executor
from changeover_shared._store.fleet import Fleet
from changeover_shared._store.keys import Keys
from changeover_shared._store.records import Create, Submit, Submitted
from changeover_shared._store.requests import Request
from changeover_shared._store.scripts import NAMES, Script, script
from changeover_shared._store.wire import Group
from tests.support.driving import LATER_MS, SESSION, Driver, accepted, hash_slot
from tests.support.every_request import every_request
from tests.support.fleet import Stores, small_settings, stores_on
from tests.support.servers import SERVERS, RunningServer, binary, server_process

GUARDED = tuple(
    name for name in NAMES if name not in ("init", "raise_epoch", "renew", "permit", "limit")
)
"""`renew` has no guard of its own: it works while a slot is migrating. `permit` and
`limit` are of no partition."""
FIRST_GUARDS = ("NO_FLEET", "LAYOUT", "EPOCH")
"""What these answer before they look at anything else."""
GRANTING = tuple(
    name for name in NAMES if "not_after" in script(name).header.args and name != "claim"
)
"""A late claim is refused session by session, because it still finds its own grants."""


async def request_of(drive: Driver, name: str, not_after_ms: int = 0) -> Request:
    return every_request(
        drive.fleet.keys,
        drive.stores.producer.settings,
        not_after_ms=not_after_ms or await drive.now() + LATER_MS,
    )[name]


@pytest.mark.parametrize("name", GUARDED)
async def test_nothing_is_written_before_the_partition_exists(drive: Driver, name: str) -> None:
    """Hole 38."""
    async with drive.unchanged():
        assert await drive.bare(await request_of(drive, name)) == ["NO_FLEET"]


@pytest.mark.parametrize("given", [{"partitions": 8}, {"layout": 2}], ids=["P", "layout"])
@pytest.mark.parametrize("name", GUARDED)
async def test_another_universe_is_refused(drive: Driver, name: str, given: dict[str, int]) -> None:
    """Holes 38 and 62: a client that computes other partitions writes where nobody reads."""
    await drive.run("m1")
    await drive.schedule()
    async with drive.unchanged():
        assert await drive.bare(await request_of(drive, name), **given) == ["LAYOUT", "4", "1"]


@pytest.mark.parametrize("name", GUARDED)
async def test_another_server_than_the_caller_believes_in_is_refused(
    drive: Driver, name: str
) -> None:
    """Hole 30."""
    await drive.run("m1")
    await drive.schedule()
    request = await request_of(drive, name)
    stored = await drive.executor.replication_id(request.partition.named("meta"))
    async with drive.unchanged():
        reply = await drive.bare(request, replid="another")
    assert reply == ["EPOCH", stored, "1"]


@pytest.mark.parametrize("name", GRANTING)
async def test_what_could_be_granted_too_late_is_not(drive: Driver, name: str) -> None:
    """Holes 2 and 3, F4."""
    await drive.submit("m9")
    await drive.schedule()
    request = await request_of(drive, name, not_after_ms=await drive.now() - 1)
    async with drive.unchanged():
        assert await drive.bare(request) == ["LATE"]


@pytest.mark.parametrize("name", NAMES)
def test_all_keys_of_a_call_lie_in_one_slot(name: str) -> None:
    """Hole 1: also those of several sessions."""
    keys = Keys("co", 4)
    request = every_request(keys, small_settings(), not_after_ms=0, sessions=3)[name]
    found = {"meta": request.partition.named("meta"), **request.keys}
    for each in request.each:
        found |= {f"{name} {len(found)}": key for name, key in each.items()}
    assert {hash_slot(key) for key in found.values()} == {hash_slot(found["meta"])}


@pytest.mark.parametrize("name", NAMES)
def test_a_request_names_what_its_script_declares(name: str) -> None:
    """Neither more nor less: what is not declared would be left out in silence."""
    request = every_request(Keys("co", 4), small_settings(), not_after_ms=0)[name]
    header = script(name).header
    universe = {"partitions", "layout", "replid"}
    assert set(request.keys) | {"meta"} == set(header.keys) | {"meta"}
    assert set(request.args) | universe == set(header.args) | universe
    assert {frozenset(each) for each in request.each} <= {frozenset(header.each)}
    assert set(request.lists or {}) == set(header.lists)


# Other servers behind the same address


async def test_a_new_server_is_no_error_for_anybody(drive: Driver) -> None:
    """Hole 30: the same request is repeated in a new epoch."""
    await drive.submit("m1")
    await drive.redis("HSET", drive.shared("meta"), "replid", "old")
    asked = Submit(SESSION, "m2", "d", "turn", "b", Create(drive.route, "assistant"))
    answer = await drive.stores.producer.submit(asked)
    assert isinstance(answer, Submitted) and answer.word == "ACCEPTED"
    assert await drive.redis("HGET", drive.shared("meta"), "epoch") == "2"
    assert [entry.n for entry in await drive.stores.producer.inbox(SESSION)] == [1, 2]


async def test_two_clients_that_find_a_new_server_raise_one_epoch(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.redis("HSET", drive.shared("meta"), "replid", "old")
    await asyncio.gather(*(drive.submit(f"m{i}") for i in range(2, 10)))
    assert await drive.redis("HGET", drive.shared("meta"), "epoch") == "2"
    assert sorted(await drive.bodies("inbox")) == list(range(1, 10))


async def test_a_holder_goes_on_in_the_new_epoch(drive: Driver) -> None:
    """Hole 31: its lease string is the same, so nothing is lost by a mere restart."""
    lease = await drive.run("m1")
    await drive.redis("HSET", drive.shared("meta"), "replid", "old")
    assert (await drive.append(lease, 1))[0] == "OK"
    assert (await drive.journal())[-1]["epoch"] == "2"
    assert (await drive.head())["epoch_seq"] == "1"


def start_again(server: RunningServer, *args: str) -> subprocess.Popen[bytes]:
    """The same server on its port and files, after it was killed."""
    port = urlsplit(server.url).port
    program = binary(server.kind)
    assert program is not None
    return subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "",
         "--dir", str(server.directory), *args],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_killed_server_comes_back_on_its_append_only_file(kind: str) -> None:
    """Hole 30: everything acknowledged is there, and callers notice a pause at most."""
    durable = ("--appendonly", "yes")
    with server_process(kind, durable) as server:
        executor = await Executor.connect(server.url)
        async with stores_on(executor, small_settings()) as stores:
            drive = Driver(stores)
            lease = await drive.run("m1", ttl_ms=600_000)
            server.process.kill()
            server.process.wait()
            again = start_again(server, *durable)
            try:
                await stores.worker.append(lease, 1, ())
                reply = accepted(await drive.submit("m2"))
                assert (reply["n"], reply["status"]) == ("2", "held")
                await drive.finish(lease)
                assert (await drive.receipt("m1") or {})["ending"] == "completed"
                assert await drive.redis("HGET", drive.shared("meta"), "epoch") == "2"
            finally:
                again.kill()
                again.wait()


# Scripts on a server


async def test_a_flush_of_the_scripts_between_calls_is_survived(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.stores.forget_scripts()
    assert (await drive.append(lease, 1))[0] == "OK"
    await drive.stores.forget_scripts()
    asked = [
        Submit(SESSION, f"m{i}", "d", "turn", "b", Create(drive.route, "assistant"))
        for i in range(2, 12)
    ]
    answers = await drive.stores.producer.submit_all(asked)
    assert [answer.n for answer in answers if isinstance(answer, Submitted)] == list(range(2, 12))


def another_release(ours: Script) -> Script:
    """The same script with another text, and so another SHA."""
    text, plain = (f"{one}\n-- another release" for one in (ours.text, ours.plain))
    sha, plain_sha = (hashlib.sha1(one.encode()).hexdigest() for one in (text, plain))
    return dataclasses.replace(ours, text=text, plain=plain, sha=sha, plain_sha=plain_sha)


async def test_two_releases_of_a_script_work_side_by_side(drive: Driver) -> None:
    """The content is the version: neither meets the other's text."""
    ours = script("submit")
    theirs = another_release(ours)
    await drive.submit("m1")
    request = await request_of(drive, "submit")
    for i, release in enumerate((ours, theirs, ours, theirs), start=2):
        asked = dataclasses.replace(request, args={**request.args, "id": f"m{i}"})
        call = dataclasses.replace(drive.fleet._call(asked), script=release)
        reply = await drive.executor.run(call)
        assert (reply[0], int(reply[1])) == ("ACCEPTED", i)


@pytest.mark.parametrize("kind", SERVERS)
def test_flags_stand_where_servers_know_them(kind: str) -> None:
    """Hole 40: renewals and clean ends pass when memory is full."""
    for name in ("renew", "give_up", "evict"):
        assert script(name).text.startswith("#!lua flags=allow-oom\n")
    assert script("peek").text.startswith("#!lua flags=no-writes\n")
    with server_process(kind) as server:
        client = sync_client(parse_url(server.url))
        for name in NAMES:
            assert client.script_load(script(name).text) == script(name).sha
        client.close()


# Joining


async def test_the_first_to_join_creates_the_fleet_and_others_take_its_numbers(
    stores: Stores,
) -> None:
    joined = await Fleet.join(stores.executor, read_settings())
    assert joined.keys.partitions == 4


async def test_another_number_of_partitions_is_a_mismatch(stores: Stores) -> None:
    """Hole 38."""
    before = await stores.dump()
    with pytest.raises(PartitionMismatch, match="has 4 partitions, you asked for 8"):
        await Fleet.join(stores.executor, read_settings(partitions=8))
    assert await stores.dump() == before


async def test_a_fleet_of_a_newer_layout_is_not_joined(stores: Stores) -> None:
    """Hole 62."""
    config = stores.producer.keys.config
    await stores.executor.command("SET", config, '{"partitions": 4, "layout": 2}')
    before = await stores.dump()
    with pytest.raises(FormatTooNew, match="format 2"):
        await Fleet.join(stores.executor, small_settings())
    assert await stores.dump() == before


async def test_a_partition_of_another_universe_is_told_to_the_caller(drive: Driver) -> None:
    """Hole 38: not only at start-up."""
    await drive.submit("m1")
    await drive.redis("HSET", drive.shared("meta"), "P", 8)
    with pytest.raises(PartitionMismatch):
        await drive.submit("m2")


async def test_the_limits_of_whoever_creates_a_fleet_hold_for_everybody(stores: Stores) -> None:
    joined = await Fleet.join(
        stores.executor, small_settings(max_inbox=3, dedup_window="1h", lease="60s")
    )
    assert joined.settings.max_inbox == small_settings().max_inbox
    assert joined.settings.dedup_window == small_settings().dedup_window
    assert joined.settings.lease.total_seconds() == 60
    assert {one.name: (one.mine, one.fleet) for one in joined.differences} == {
        "max_inbox": ("3", "64"),
        "dedup_window": ("3600000", "86400000"),
    }


async def test_limits_that_nobody_named_are_no_difference(stores: Stores) -> None:
    joined = await Fleet.join(stores.executor, small_settings())
    assert joined.differences == ()


async def test_a_batch_keeps_its_order_although_its_script_comes_and_goes(
    drive: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is sent back with NOSCRIPT, and somebody loads the script before the next one comes."""
    executor = drive.stores.executor
    await drive.submit("first")
    flushed = asyncio.Event()
    wire = await executor._servers.of(drive.shared("meta"))
    send = wire._send
    text = script("submit").plain if executor.plain_scripts else script("submit").text

    async def forget_in_mid_pipeline(batch: Group, claims: Collection[str]) -> None:
        if len(batch) > 10 and not flushed.is_set():
            flushed.set()
            ignored = asyncio.get_running_loop().create_future
            batch[5:5] = [(("SCRIPT", "FLUSH"), ignored())]
            batch[8:8] = [(("SCRIPT", "LOAD", text), ignored())]
        await send(batch, claims)

    monkeypatch.setattr(wire, "_send", forget_in_mid_pipeline)
    create = Create(drive.route, "assistant")
    sent = [Submit(drive.session, f"m{n}", f"d{n}", "turn", "body", create) for n in range(20)]
    answers = await drive.stores.producer.submit_all(sent)
    assert flushed.is_set()
    assert [answer.n for answer in answers if isinstance(answer, Submitted)] == list(range(2, 22))


async def test_an_entry_of_another_release_in_the_registry_is_left_out(stores: Stores) -> None:
    await stores.worker.register("w:1", WorkerInfo(worker="w", incarnation="w:1"))
    await stores.executor.command("HSET", stores.producer.keys.workers, "n:1", '{"state":"new"}')
    assert [worker.incarnation for worker in await stores.worker.registry()] == ["w:1"]
    assert [worker.incarnation for worker in await stores.producer.workers()] == ["w:1"]
