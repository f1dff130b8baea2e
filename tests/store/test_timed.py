"""Messages with a time of their own: when they may run is counted on Redis's clock alone."""

from __future__ import annotations

from typing import Any

import pytest

from changeover_shared._errors import Invalid
from changeover_shared._policies import Wish
from changeover_shared._store.records import Create, Submit
from tests.support.driving import LATER_MS, Driver, accepted

DAY_MS = 86_400_000
LONGEST_MS = 366 * DAY_MS


async def due_of(drive: Driver, n: int = 1) -> int:
    return int((await drive.work())[str(n)][1])


async def test_a_delay_counts_from_the_acceptance(drive: Driver) -> None:
    before = await drive.now()
    assert accepted(await drive.submit("m1", delay_ms=LATER_MS))["status"] == "idle"
    accepted_ms = int((await drive.receipt("m1") or {})["accepted"])
    assert before <= accepted_ms <= await drive.now()
    assert await due_of(drive) == accepted_ms + LATER_MS
    assert await drive.score("timers") == accepted_ms + LATER_MS


async def test_the_repeat_of_a_delayed_message_does_not_begin_its_delay_anew(
    drive: Driver,
) -> None:
    await drive.submit("m1", delay_ms=LATER_MS)
    async with drive.unchanged():
        assert (await drive.submit("m1", delay_ms=2 * LATER_MS))[0] == "DUPLICATE"


async def test_a_time_that_has_passed_is_now(drive: Driver) -> None:
    assert accepted(await drive.submit("m1", due_ms=1))["status"] == "ready"
    lease = await drive.hold()
    assert (await drive.commit(lease, "start", take=(1,)))[0] == "OK"


async def test_nobody_takes_a_message_before_its_time(drive: Driver) -> None:
    """Hole 13: however it waits."""
    await drive.submit("m1")
    await drive.submit("m2", delay_ms=LATER_MS)
    await drive.submit("m3", delay_ms=LATER_MS, policy="steer")
    lease = await drive.hold()
    async with drive.unchanged():
        assert (await drive.commit(lease, "start", take=(2,)))[0] == "INPUT"
    await drive.commit(lease, "start", take=(1,))
    async with drive.unchanged():
        assert (await drive.commit(lease, "take", take=(3,)))[0] == "INPUT"
    await drive.finish(lease)
    assert (await drive.status(), await drive.indexes()) == ("idle", {"timers"})
    await drive.make_due(2)
    assert await drive.reap() == [["PLACED", "ready"]]


async def test_a_scheduled_message_is_cancelled_like_any_that_waits(drive: Driver) -> None:
    await drive.submit("m1", delay_ms=LATER_MS)
    assert await drive.cancel("m1") == ["CANCELLED"]
    assert (await drive.receipt("m1") or {})["ending"] == "cancelled"
    assert (await drive.status(), await drive.indexes(), await drive.work()) == ("idle", set(), {})


@pytest.mark.parametrize("given", ["due_ms", "delay_ms"])
async def test_a_year_ahead_is_the_most(drive: Driver, given: str) -> None:
    now = await drive.now() if given == "due_ms" else 0
    enough: dict[str, Any] = {given: now + LONGEST_MS - DAY_MS}
    too_much: dict[str, Any] = {given: now + LONGEST_MS + DAY_MS}
    assert (await drive.submit("m1", **enough))[0] == "ACCEPTED"
    async with drive.unchanged():
        too_far = await drive.submit("m2", **too_much)
    assert too_far == ["TOO_FAR", str(LONGEST_MS)]


async def test_what_is_too_far_ahead_is_told_by_its_field(drive: Driver) -> None:
    create = Create(drive.route, "assistant")
    asked = Submit(drive.session, "m1", "d", "turn", "body", create, delay_ms=2 * LONGEST_MS)
    await drive.neighbour().submit("m1")
    async with drive.unchanged():
        with pytest.raises(
            Invalid, match=r"more than 366 d from now.*nothing was accepted"
        ) as told:
            await drive.stores.producer.submit(asked)
    assert told.value.field == "delay"


@pytest.mark.parametrize("policy", ["debounce", "interrupt", "rollback"])
async def test_an_agent_that_acts_at_once_leaves_a_message_with_a_time_alone(
    drive: Driver, policy: str
) -> None:
    """It stops nothing before its time, and no later message changes when it runs."""
    wish = Wish(policy, policy, 1000, 2000)
    await drive.run("m1")
    await drive.submit("m2", policy="", defaults={"assistant": wish}, delay_ms=LATER_MS)
    assert "ctl_turn" not in await drive.head()
    before = await due_of(drive, 2)
    await drive.submit("m3", policy="", defaults={"assistant": wish})
    assert await due_of(drive, 2) == before
    assert (await drive.work())["2"][0] == "turn"


async def test_a_later_latest_replaces_one_that_waits_for_its_time(drive: Driver) -> None:
    await drive.submit("m1", delay_ms=LATER_MS, policy="latest", key="latest")
    reply = accepted(await drive.submit("m2", delay_ms=1000, policy="latest", key="latest"))
    assert reply["replaced"] == ["m1"]
    assert list(await drive.work()) == ["2"]
