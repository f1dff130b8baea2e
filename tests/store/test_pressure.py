"""`pressure`: while memory is short no session takes a message, and what frees memory passes."""

from __future__ import annotations

import pytest

from changeover_shared._errors import Busy
from changeover_shared._store.records import Create, Memory, Submit
from tests.support.driving import TTL_MS, Driver

USED, LIMIT = 972_800_000, 1_024_000_000


async def test_a_partition_under_pressure_takes_no_message_and_says_why(drive: Driver) -> None:
    """Hole 40: before Redis itself refuses."""
    await drive.submit("m1")
    assert await drive.pressure(USED, LIMIT) == ["OK"]
    async with drive.unchanged():
        assert await drive.submit("m2") == ["BUSY", "memory", str(USED), str(LIMIT), "5000"]
        assert (await drive.neighbour().submit("m1"))[:2] == ["BUSY", "memory"]
        assert (await drive.submit("m1"))[0] == "DUPLICATE"


async def test_the_client_is_told_what_is_used_and_when_to_come_again(drive: Driver) -> None:
    await drive.pressure(USED, LIMIT)
    create = Create(drive.route, "assistant")
    asked = Submit(drive.session, "m1", "d", "turn", "body", create)
    async with drive.unchanged():
        with pytest.raises(Busy, match=r"928 MiB of 977 MiB.*nothing was accepted") as refusal:
            await drive.stores.producer.submit(asked)
    assert refusal.value.scope == "memory"
    assert (refusal.value.depth, refusal.value.limit) == (USED, LIMIT)
    assert refusal.value.retry_after.total_seconds() == 5


async def test_answers_and_controls_pass_under_pressure(drive: Driver) -> None:
    """Hole 40: what a turn waits for, and what ends it, frees memory."""
    await drive.park("w1")
    await drive.submit("m2")
    await drive.pressure(USED, LIMIT)
    assert (await drive.answer("w1"))[0] == "ACCEPTED"
    assert (await drive.interrupt())[0] == "ACCEPTED"
    assert await drive.cancel("m2") == ["CANCELLED"]


async def test_held_work_goes_on_under_pressure(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.pressure(USED, LIMIT)
    lease = await drive.hold()
    assert (await drive.commit(lease, "start", take=(1,)))[0] == "OK"
    assert (await drive.append(lease))[0] == "OK"
    await drive.finish(lease, items=("answer",))


async def test_pressure_ends_when_it_is_said_and_by_itself(drive: Driver) -> None:
    """Without a worker that measures, nobody could take it back."""
    await drive.pressure(USED, LIMIT)
    assert await drive.pressure() == ["OK"]
    assert await drive.redis("HGET", drive.shared("meta"), "pressure") is None
    assert (await drive.submit("m1"))[0] == "ACCEPTED"
    await drive.pressure(USED, LIMIT, span_ms=-1)
    assert (await drive.submit("m2"))[0] == "ACCEPTED"


async def test_a_look_shows_for_how_long_messages_are_refused(drive: Driver) -> None:
    await drive.pressure(USED, LIMIT)
    async with drive.unchanged():
        left_ms = int((await drive.peek())[4])
    assert TTL_MS - 10_000 < left_ms <= TTL_MS
    await drive.pressure(USED, LIMIT, span_ms=-1)
    assert (await drive.peek())[4] == "0"


async def test_a_repeat_changes_nothing_but_the_time(drive: Driver) -> None:
    await drive.pressure()
    async with drive.unchanged():
        await drive.pressure()
    await drive.pressure(USED, LIMIT)
    before = await drive.redis("HGET", drive.shared("meta"), "pressure")
    await drive.pressure(USED, LIMIT)
    after = await drive.redis("HGET", drive.shared("meta"), "pressure")
    assert after.split("|")[:2] == before.split("|")[:2]
    assert int(after.split("|")[2]) >= int(before.split("|")[2])


async def test_a_worker_tells_several_partitions_at_once(drive: Driver) -> None:
    store = drive.stores.worker
    everywhere = range(store.keys.partitions)
    await store.say_pressure(everywhere, Memory(USED, LIMIT), span_ms=TTL_MS)
    looks = [await store.peek(one, [], window=0) for one in everywhere]
    assert all(look.pressure_ms > 0 for look in looks)
    await store.say_pressure(everywhere, None, span_ms=TTL_MS)
    looks = [await store.peek(one, [], window=0) for one in everywhere]
    assert [look.pressure_ms for look in looks] == [0] * len(looks)
