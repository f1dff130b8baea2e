"""`init`: a partition is what it was created as."""

from __future__ import annotations

import pytest

from changeover_shared._store.requests import Request
from tests.support.driving import Driver, fields


def init(drive: Driver) -> Request:
    return Request("init", drive.partition, {}, {})


async def test_a_partition_records_what_it_is(drive: Driver) -> None:
    assert await drive.bare(init(drive)) == ["OK", "1"]
    meta = fields(await drive.redis("HGETALL", drive.shared("meta")))
    assert (meta["P"], meta["layout"], meta["epoch"]) == ("4", "1", "1")
    assert meta["replid"] == await drive.replid()


async def test_a_repeat_changes_nothing(drive: Driver) -> None:
    await drive.bare(init(drive))
    async with drive.unchanged():
        assert await drive.bare(init(drive)) == ["OK", "1"]
        assert await drive.bare(init(drive), replid="another") == ["OK", "1"]


@pytest.mark.parametrize("given", [{"partitions": 8}, {"layout": 2}])
async def test_other_numbers_are_refused(drive: Driver, given: dict[str, int]) -> None:
    """Hole 38."""
    await drive.bare(init(drive))
    async with drive.unchanged():
        assert await drive.bare(init(drive), **given) == ["LAYOUT", "4", "1"]
