"""The context of a session in Redis: one rewritten prefix at a time, none left behind."""

from __future__ import annotations

from typing import Any

import pytest

from changeover_shared._items import AnyItem, ToolResult, UserMessage, encode_item
from changeover_shared._results import TurnRecord
from changeover_shared._words import Ending
from tests.support.driving import SESSION, Driver
from tests.support.fleet import Stores


async def prefixes(drive: Driver) -> list[str]:
    return [key for key in await drive.stores.keys() if ":context:" in key]


async def test_of_all_epochs_only_the_newest_prefix_is_kept(drive: Driver) -> None:
    lease = await drive.run()
    for epoch in range(1, 6):
        await drive.commit(lease, context=f"prefix {epoch}", context_epoch=epoch)
        assert await prefixes(drive) == [drive.partition.context(SESSION, epoch)]
    await drive.commit(lease)
    assert await drive.redis("GET", drive.partition.context(SESSION, 5)) == "prefix 5"


@pytest.mark.parametrize("epoch", [0, 1, 3, 9])
async def test_a_context_epoch_neither_goes_back_nor_skips_one_nor_stays(
    drive: Driver, epoch: int
) -> None:
    """A prefix that changes without a new epoch, or an epoch that moves backwards, is refused."""
    lease = await drive.run()
    await drive.commit(lease, context="first", context_epoch=1)
    async with drive.unchanged():
        reply = await drive.commit(lease, context="other", context_epoch=epoch)
        assert reply[:2] == ["CONTEXT", "1"]


async def test_a_repeated_commit_of_a_prefix_answers_as_the_first(drive: Driver) -> None:
    lease = await drive.run()
    given: dict[str, Any] = {"commit_id": "k", "rev": 1, "context": "first", "context_epoch": 1}
    assert (await drive.commit(lease, **given))[0] == "OK"
    async with drive.unchanged():
        assert (await drive.commit(lease, **given))[0] == "REPLAY"


async def test_one_item_and_one_turn_are_read_by_their_numbers(
    stores: Stores, drive: Driver
) -> None:
    lease = await drive.run()
    items: tuple[AnyItem, ...] = (
        UserMessage(text="q"),
        ToolResult(call_id="c", name="t", output="é" * 9),
    )
    record = TurnRecord(
        turn_id="t_1", submission_ids=("m1",), ending=Ending.COMPLETED, first_item=1, last_item=2
    )
    bodies = tuple(encode_item(item) for item in items)
    await drive.finish(lease, items=bodies, turn_record=record.model_dump_json())
    assert await stores.worker.read_item(SESSION, 2) == items[1]
    assert await stores.worker.read_item(SESSION, 3) is None
    assert await stores.worker.read_item("nobody", 1) is None
    assert await stores.worker.read_turn(SESSION, 1) == record
    assert await stores.worker.read_turn(SESSION, 2) is None
