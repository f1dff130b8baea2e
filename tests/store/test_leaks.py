"""Nothing is left without an owner or an end, whatever happened to which session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from changeover_shared._store.state import Trigger
from tests.support.driving import Driver
from tests.support.fleet import Stores
from tests.support.leaks import Held, held, leaks
from tests.support.state_world import TRIGGERS, VARIANTS, World

ARRANGES = [arrange for variants in VARIANTS.values() for arrange in variants]


async def everything(drive: Driver) -> list[Driver]:
    """Every status of a session with everything that can happen to it, each on its own session."""
    met = []
    for arrange in ARRANGES:
        for trigger in Trigger:
            one = drive.of(f"{arrange.__name__}-{trigger.name}".lower())
            world = World(one)
            await arrange(world)
            await TRIGGERS[trigger](world)
            met.append(one)
    return met


async def seen(stores: Stores) -> Held:
    return await held(stores.executor, stores.producer.keys)


async def test_nothing_is_left_once_all_is_deleted_and_purged(drive: Driver) -> None:
    """Holes 33, 34: fences and numbers go on from the floors, all else is gone."""
    sessions = await everything(drive)
    assert leaks(await seen(drive.stores)) == []
    upkeep = drive.stores.producer.upkeep
    for one in sessions:
        await upkeep.delete(one.session)
    for at in drive.fleet.keys.all:
        for name in await drive.redis("ZRANGE", at.named("sessions"), 0, -1):
            assert await upkeep.delete(name), "a neighbour that a test needed"
    assert leaks(await seen(drive.stores)) == []
    for one in sessions:
        await one.purge(window_ms=-1)
    for at in drive.fleet.keys.all:
        for name in await drive.redis("ZRANGE", at.named("graves"), 0, -1):
            await drive.of(name).purge(window_ms=-1)
        await upkeep.forget_routes(at.partition, ())
    found = await seen(drive.stores)
    assert leaks(found, purged=True) == []
    kinds = {(owner.kind, owner.name) for _, owner in found.owned()}
    assert kinds <= {("fleet", "config"), ("partition", "meta"), ("bell", "other@1")}


# The check itself finds what it is for


Leak = Callable[[Driver], Awaitable[Any]]


def key(name: str, *args: Any) -> Leak:
    """Write something under a key that a formatted name says."""

    async def leave(drive: Driver) -> None:
        command, *rest = args
        tag, session = drive.partition.tag, f"{drive.partition.tag}s:{drive.session}"
        await drive.redis(command, name.format(tag=tag, session=session), *rest)

    return leave


async def _delete(drive: Driver) -> None:
    await drive.delete()


async def _delete_for_ever(drive: Driver) -> None:
    await drive.delete()
    await drive.redis("PERSIST", drive.key("journal"))


async def _lose_a_grave(drive: Driver) -> None:
    await drive.delete()
    await drive.redis("ZREM", drive.shared("graves"), drive.session)


LEAKS: dict[str, tuple[Leak, str]] = {
    "a key of nobody": (key("elsewhere", "SET", "v"), "elsewhere belongs to nothing"),
    "a key of no known name": (key("{session}:notes", "SET", "v"), "notes belongs to nothing"),
    "a gate without an end": (key("co:sweep", "SET", "w:1"), "co:sweep never ends"),
    "a bell without an end": (key("{{co:bell}}:a@1", "ZADD", 1, 0), "a@1 never ends"),
    "a dead worker": (key("co:workers", "HSET", "w:1", "{}"), "registers w:1, which is gone"),
    "a ready ghost": (key("{tag}ready:a@1", "ZADD", 1, "ghost"), "names ghost, which is not"),
    "a lease of a ghost": (key("{tag}owners", "HSET", "ghost", "1|w|n"), "names ghost, which"),
    "a ghost in the catalogue": (key("{tag}sessions", "ZADD", 1, "ghost"), "names ghost, which"),
    "an empty grave": (key("{tag}graves", "ZADD", 1, "ghost"), "not there to be purged"),
    "an older prefix": (key("{session}:context:7", "SET", "[]"), "no context has any more"),
    "a session that fades": (key("{session}:work", "PEXPIRE", 9_000_000), "ends before its"),
    "a journal for ever": (_delete_for_ever, "journal outlives its session"),
    "a count too many": (key("{tag}waiting", "HSET", "*", 2), "says that {'*': 2} wait"),
    "a tenant too many": (key("{tag}waiting", "HSET", "acme", 1), "'acme': 1} wait, and there are"),
    "a lost tombstone": (_lose_a_grave, "no purge would find"),
}


@pytest.mark.parametrize("name", LEAKS)
async def test_a_leak_is_found(stores: Stores, name: str) -> None:
    leave, expected = LEAKS[name]
    drive = Driver(stores)
    await drive.submit("m1")
    assert leaks(await seen(stores)) == []
    await leave(drive)
    (found,) = leaks(await seen(stores))
    assert expected in found
    await stores.empty()


async def test_what_a_deletion_leaves_is_a_leak_only_after_the_purge(stores: Stores) -> None:
    drive = Driver(stores)
    await drive.submit("m1")
    await drive.delete()
    found = await seen(stores)
    assert leaks(found) == []
    after = leaks(found, purged=True)
    for part in ("head", "journal", "receipts", "settled"):
        assert f"{drive.key(part)} belongs to a session that was deleted and purged" in after
    assert any("of a route that no session has" in leak for leak in after)
