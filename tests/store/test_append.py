"""`append`: events under the lease, each batch once, in order."""

from __future__ import annotations

from changeover_shared._events import Delta, Event
from changeover_shared._words import GiveUp
from tests.support.driving import Driver

DELTA = Delta(text="hello", turn_id="t_1", step_id="s1")
OTHER = Event(type="tool_progress")


async def test_events_are_numbered_densely(drive: Driver) -> None:
    lease = await drive.run("m1")
    assert await drive.append(lease, 1, DELTA, DELTA) == ["OK", "1", "0", "1"]
    assert await drive.append(lease, 2, OTHER) == ["OK", "3", "0", "1"]
    journal = await drive.journal()
    assert [event["seq"] for event in journal] == ["1", "2", "3"]
    assert {name: journal[0][name] for name in ("type", "turn", "step", "body", "fence")} == {
        "type": "delta", "turn": "t_1", "step": "s1", "body": '{"text":"hello"}', "fence": "1",
    }  # fmt: skip


async def test_a_repeat_is_answered_like_the_first_and_changes_nothing(drive: Driver) -> None:
    """Hole 4: a lost reply is no second delta."""
    lease = await drive.run("m1")
    first = await drive.append(lease, 1, DELTA, DELTA)
    async with drive.unchanged():
        assert await drive.append(lease, 1, DELTA, DELTA) == ["ALREADY", *first[1:], "OK"]


async def test_the_repeat_of_a_shortened_batch_says_that_it_was_shortened(drive: Driver) -> None:
    """Hole 51: else its holder would take other events for its deltas."""
    lease = await drive.run("m1")
    first = await drive.append(lease, 1, DELTA, cap=0)
    assert first[0] == "DROPPED"
    async with drive.unchanged():
        assert await drive.append(lease, 1, DELTA, cap=0) == ["ALREADY", *first[1:], "DROPPED"]
    assert (await drive.stores.worker.append(lease, 1, (DELTA,))).dropped


async def test_a_missing_batch_is_a_gap(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.append(lease, 1)
    async with drive.unchanged():
        assert await drive.append(lease, 3) == ["GAP", "1"]


async def test_batches_begin_again_with_each_grant(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.append(lease, 1)
    await drive.give_up(lease, GiveUp.HAND_OFF)
    lease = await drive.hold(nonce="n2")
    assert (await drive.append(lease, 1))[:2] == ["OK", "2"]


async def test_above_the_cap_deltas_are_left_out_and_all_else_is_written(drive: Driver) -> None:
    """Hole 51: one endless turn stays bounded."""
    lease = await drive.run("m1")
    assert (await drive.append(lease, 1, DELTA, DELTA, cap=2))[0] == "OK"
    assert (await drive.append(lease, 2, DELTA, OTHER, DELTA, cap=2))[:2] == ["DROPPED", "3"]
    assert await drive.kinds() == ["delta", "delta", "tool_progress"]
    assert (await drive.append(lease, 3, OTHER, cap=2))[:2] == ["OK", "4"]
    await drive.finish(lease, next="hold")
    await drive.submit("m2")
    await drive.commit(lease, "start", take=(2,))
    assert (await drive.append(lease, 4, DELTA, cap=2))[0] == "OK"


async def test_the_answer_tells_of_controls_and_new_positions(drive: Driver) -> None:
    """Hole 11: a streaming worker learns of an interrupt for free."""
    lease = await drive.run("m1")
    await drive.submit("m2")
    await drive.interrupt()
    assert await drive.append(lease, 1) == ["OK", "1", "1", "2"]


async def test_without_a_lease_nothing_is_written(drive: Driver) -> None:
    lease = await drive.run("m1")
    await drive.expire()
    async with drive.unchanged():
        assert await drive.append(lease) == ["EXPIRED"]
    await drive.reap()
    async with drive.unchanged():
        assert await drive.append(lease) == ["GONE"]
    await drive.hold(incarnation="w2:bb", nonce="n2")
    async with drive.unchanged():
        assert await drive.append(lease) == ["LOST", "2"]
    await drive.wipe_out()
    async with drive.unchanged():
        assert await drive.append(lease) == ["DELETED"]


async def test_the_first_event_of_an_epoch_is_marked(drive: Driver) -> None:
    """Hole 30: a follower of an older epoch can tell what was rewound."""
    lease = await drive.run("m1")
    await drive.append(lease, 1, DELTA)
    await drive.redis("HSET", drive.shared("meta"), "epoch", 2)
    await drive.append(lease, 2, DELTA, DELTA)
    head = await drive.head()
    assert (head["epoch"], head["epoch_seq"]) == ("2", "2")
    assert [event["epoch"] for event in await drive.journal()] == ["1", "2", "2"]


async def test_time_never_goes_back_within_a_session(drive: Driver) -> None:
    """Hole 49."""
    lease = await drive.run("m1")
    await drive.set_head(at_ms=await drive.now() + 60_000)
    await drive.append(lease, 1, DELTA)
    assert (await drive.journal())[0]["at"] == (await drive.head())["at_ms"]
