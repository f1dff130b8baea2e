"""`Upkeep`: what producers and operators ask, with answers that stay as they are."""

from __future__ import annotations

import pytest

from changeover_shared._errors import SessionHeld
from changeover_shared._store.upkeep import Upkeep
from tests.support.driving import SESSION, Driver


def upkeep(drive: Driver) -> Upkeep:
    return Upkeep(drive.fleet)


async def test_a_deletion_finds_the_route_and_the_prefix_that_the_session_has(
    drive: Driver,
) -> None:
    lease = await drive.run("m1")
    await drive.commit(lease, context="[]", context_epoch=1)
    await drive.finish(lease)
    await drive.reroute("other@1")
    assert await upkeep(drive).delete(SESSION)
    assert await drive.stores.keys(f"*s:{SESSION}:context*") == []
    assert not await upkeep(drive).delete(SESSION)


async def test_a_session_is_moved_and_its_new_queue_is_rung(drive: Driver) -> None:
    await drive.submit("m1")
    assert await upkeep(drive).reroute(SESSION, "other")
    assert (await drive.head())["route"] == "other@1"
    bell = drive.fleet.keys.bell("other@1")
    assert await drive.redis("ZRANGE", bell, 0, -1) == [str(drive.partition.partition)]
    assert await upkeep(drive).reroute(SESSION, "other")
    assert not await upkeep(drive).reroute("nobody", "other")


async def test_a_held_session_is_not_moved(drive: Driver) -> None:
    await drive.run("m1")
    async with drive.unchanged():
        with pytest.raises(SessionHeld, match="nothing was changed"):
            await upkeep(drive).reroute(SESSION, "other")


async def test_a_purge_counts_what_it_forgot(drive: Driver) -> None:
    await drive.finish(await drive.run("m1"))
    await upkeep(drive).delete(SESSION)
    partition = drive.partition.partition
    assert await upkeep(drive).graves(partition) == (SESSION,)
    assert await upkeep(drive).purge(partition, [SESSION]) == (0, 0)
    await drive.set_head(deleted_ms=1)
    assert await upkeep(drive).purge(partition, [SESSION]) == (1, 0)
    assert await upkeep(drive).graves(partition) == ()
