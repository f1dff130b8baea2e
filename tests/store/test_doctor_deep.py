"""`doctor --deep`: whatever the scripts do leaves nothing to find, and damage is found and mended
by what the finding says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable

import pytest

from changeover._deep import look_deep
from changeover_shared._server.check import Finding
from changeover_shared._store.state import COLUMNS, Trigger
from tests.support.driving import ROUTE, SESSION, Driver
from tests.support.fleet import Stores
from tests.support.state_world import TRIGGERS, VARIANTS, World


async def looked(stores: Stores) -> list[Finding]:
    """Everything that a deep look finds wrong."""
    keys = stores.producer.keys
    return [one for one in await look_deep(stores.executor, keys, 1, None) if one.level != "ok"]


@pytest.mark.parametrize("trigger", list(Trigger), ids=lambda trigger: trigger.name.lower())
async def test_no_script_leaves_anything_to_find(stores: Stores, trigger: Trigger) -> None:
    """In every cell of the table of statuses and events."""
    for before in COLUMNS:
        for arrange in VARIANTS[before]:
            await stores.empty()
            world = World(Driver(stores))
            await arrange(world)
            assert await looked(stores) == [], (before, arrange.__name__)
            await TRIGGERS[trigger](world)
            assert await looked(stores) == [], (before, arrange.__name__, trigger)


async def test_the_rounds_of_a_session_leave_nothing_to_find(stores: Stores) -> None:
    """Two lives with a purge between them, so that counters begin at a floor."""
    drive = Driver(stores)
    for n in range(2):
        await drive.finish(await drive.run(f"m{n}"))
        await drive.submit(f"later{n}")
        assert await looked(stores) == []
        await drive.delete()
        assert await looked(stores) == []
        assert await drive.purge(window_ms=0) == ["PURGED", "0"]
        assert await looked(stores) == []


async def test_a_look_changes_nothing(stores: Stores) -> None:
    drive = Driver(stores)
    await drive.submit("m1")
    before = await stores.dump()
    await looked(stores)
    assert await stores.dump() == before


async def idle(drive: Driver) -> None:
    await drive.finish(await drive.run("m1"))


async def ready(drive: Driver) -> None:
    await drive.submit("m1")


async def held(drive: Driver) -> None:
    await drive.run("m1")


async def deleted(drive: Driver) -> None:
    await idle(drive)
    await drive.delete()


Damage = Callable[[Driver], Awaitable[object]]


def key(drive: Driver, name: str) -> str:
    return drive.partition.session(SESSION, name)


DAMAGES: dict[str, tuple[Damage, Damage, str]] = {
    "ready and in no index": (
        ready, lambda d: d.redis("ZREM", d.partition.ready(ROUTE), SESSION), "wrong_index"),
    "ready and in timers as well": (
        ready, lambda d: d.redis("ZADD", d.shared("timers"), 4e12, SESSION), "wrong_index"),
    "ready in the set of suspects": (
        ready, lambda d: d.redis("RENAME", d.partition.ready(ROUTE), d.partition.solo(ROUTE)),
        "wrong_index"),
    "idle and in timers": (
        idle, lambda d: d.redis("ZADD", d.shared("timers"), 4e12, SESSION), "wrong_index"),
    "idle and said to be ready": (
        idle, lambda d: d.redis("HSET", key(d, "head"), "status", "ready"), "wrong_status"),
    "leased by nobody": (
        ready, lambda d: d.redis("ZADD", d.shared("leases"), 4e12, SESSION), "wrong_index"),
    "held without a lease": (
        held, lambda d: d.redis("ZREM", d.shared("leases"), SESSION), "wrong_index"),
    "listed as quarantined": (
        idle, lambda d: d.redis("ZADD", d.shared("quarantine"), 1, SESSION), "wrong_quarantine"),
    "in no catalogue": (
        idle, lambda d: d.redis("ZREM", d.shared("sessions"), SESSION), "not_listed"),
    "deleted and in the catalogue": (
        deleted, lambda d: d.redis("ZADD", d.shared("sessions"), 1, SESSION), "not_listed"),
    "deleted and not among the tombstones": (
        deleted, lambda d: d.redis("ZREM", d.shared("graves"), SESSION), "not_listed"),
    "deleted and in an index": (
        deleted, lambda d: d.redis("ZADD", d.shared("timers"), 4e12, SESSION), "wrong_index"),
    "deleted with a body left": (
        deleted, lambda d: d.redis("XADD", key(d, "inbox"), "1-0", "sub", "m"), "left_behind"),
    "deleted with receipts that never end": (
        deleted, lambda d: d.redis("PERSIST", key(d, "receipts")), "left_behind"),
    "a key of no session": (
        idle, lambda d: d.redis("SET", d.neighbour().partition.session("ghost:0", "head")
                                .replace("ghost:0", ghost(d)).replace(":head", ":journal"), "x"),
        "orphan_key"),
    "a key that nothing writes": (
        idle, lambda d: d.redis("SET", "co:unheard", "x"), "unknown_key"),
    "an index that names no session": (
        idle, lambda d: d.redis("ZADD", d.shared("timers"), 1, ghost(d)), "wrong_entry"),
    "an owner of no session": (
        idle, lambda d: d.redis("HSET", d.shared("owners"), ghost(d), "1|w|n"), "wrong_entry"),
    "a ready set of another route": (
        ready, lambda d: d.redis("ZADD", d.partition.ready("other@1"), 1, SESSION),
        "wrong_entry"),
    "an alert for nobody": (
        idle, lambda d: d.redis("HSET", d.shared("alerts"), SESSION, 1), "wrong_entry"),
}  # fmt: skip
"""What is there, what is done to it, and what is found."""


def ghost(drive: Driver) -> str:
    """A session of this partition that nobody has submitted to."""
    return drive.neighbour("ghost").session


@pytest.mark.parametrize("name", DAMAGES)
async def test_damage_is_found_and_its_remedy_mends_it(stores: Stores, name: str) -> None:
    arrange, damage, code = DAMAGES[name]
    drive = Driver(stores)
    await arrange(drive)
    assert await looked(stores) == []
    await damage(drive)
    found = await looked(stores)
    assert code in {one.code for one in found}, found
    for one in found:
        assert one.level == "fail"
        assert one.remedy is not None
        await apply(stores, one.remedy)
    assert await looked(stores) == []


LOSSES: dict[str, tuple[Damage, Damage, str]] = {
    "a body": (ready, lambda d: d.redis("XTRIM", key(d, "inbox"), "MAXLEN", 0), "lost_body"),
    "a receipt": (ready, lambda d: d.redis("HDEL", key(d, "receipts"), "m1"), "wrong_receipt"),
    "the age of a receipt": (
        idle, lambda d: d.redis("ZREM", key(d, "settled"), "m1"), "wrong_receipt"),
    "open work": (ready, lambda d: d.redis("HDEL", key(d, "work"), "1"), "wrong_receipt"),
    "the newest event": (
        idle, lambda d: d.redis("HSET", key(d, "head"), "seq", 9), "damaged_stream"),
    "the newest checkpoint": (
        held, lambda d: d.redis("HSET", key(d, "head"), "rev", 9), "damaged_stream"),
    "the rewritten context": (
        idle, lambda d: d.redis("HSET", key(d, "head"), "context_epoch", 1), "damaged_stream"),
    "a number": (idle, lambda d: d.redis("HSET", key(d, "head"), "seq", "x"), "unreadable"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
async def test_what_is_lost_is_found_and_cannot_be_made_up(stores: Stores, name: str) -> None:
    arrange, damage, code = LOSSES[name]
    drive = Driver(stores)
    await arrange(drive)
    await damage(drive)
    assert code in {one.code for one in await looked(stores)}


async def test_many_of_a_kind_are_counted_and_a_few_are_named(stores: Stores) -> None:
    for n in range(12):
        await Driver(stores).redis("SET", f"co:unheard:{n}", "x")
    found = [one for one in await looked(stores) if one.code == "unknown_key"]
    assert (len(found), found[-1].text) == (6, "and 7 more like that")
    await stores.executor.commands([("UNLINK", f"co:unheard:{n}") for n in range(12)])
    assert await looked(stores) == []


async def apply(stores: Stores, remedy: str) -> None:
    """Do what a finding says."""
    moved = re.fullmatch(r'SyncOperator\(\)\.reroute\("(.*)", "(.*)"\)', remedy)
    if moved:
        await stores.producer.upkeep.reroute(moved[1], moved[2])
        return
    for line in remedy.split("; "):
        program, *command = shlex.split(line)
        assert program == "redis-cli", remedy
        await stores.executor.command(*command)
