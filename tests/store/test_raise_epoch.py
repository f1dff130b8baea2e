"""`raise_epoch`: another server than before begins a new epoch, once."""

from __future__ import annotations

import pytest

from changeover_shared._store.requests import Request
from tests.support.driving import Driver


def raise_epoch(drive: Driver, expected: str) -> Request:
    return Request("raise_epoch", drive.partition, {}, {"expected": expected})


async def test_a_new_server_begins_a_new_epoch(drive: Driver) -> None:
    """Hole 30."""
    await drive.submit("m1")
    await drive.redis("HSET", drive.shared("meta"), "replid", "old")
    assert await drive.bare(raise_epoch(drive, "old")) == ["OK", "2"]
    assert await drive.redis("HGET", drive.shared("meta"), "replid") == await drive.replid()


async def test_a_repeat_changes_nothing(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.redis("HSET", drive.shared("meta"), "replid", "old")
    await drive.bare(raise_epoch(drive, "old"))
    async with drive.unchanged():
        assert await drive.bare(raise_epoch(drive, "old")) == ["OK", "2"]


async def test_the_second_of_two_is_stale(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.redis("HSET", drive.shared("meta"), "replid", "newest")
    async with drive.unchanged():
        assert await drive.bare(raise_epoch(drive, "old")) == ["STALE", "newest", "1"]


async def test_there_is_no_epoch_without_a_partition(drive: Driver) -> None:
    async with drive.unchanged():
        assert await drive.bare(raise_epoch(drive, "old")) == ["NO_FLEET"]


@pytest.mark.parametrize("given", [{"partitions": 8}, {"layout": 2}])
async def test_another_universe_is_refused(drive: Driver, given: dict[str, int]) -> None:
    """Hole 38."""
    await drive.submit("m1")
    async with drive.unchanged():
        assert await drive.bare(raise_epoch(drive, "old"), **given) == ["LAYOUT", "4", "1"]
