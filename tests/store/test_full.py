"""`full`: where as many submissions wait as may, no session takes a message."""

from __future__ import annotations

import pytest

from changeover_shared._errors import Busy
from changeover_shared._store.records import EVERYBODY, Create, Crowd, Submit
from tests.support.driving import ROUTE, TTL_MS, Driver

ACME = Create(ROUTE, "assistant", tenant="acme")
ACMES = Create(ROUTE, "assistant", tenant="acmes")


async def test_a_full_tenant_takes_no_message_and_others_do(drive: Driver) -> None:
    await drive.submit("m1", create=ACME)
    await drive.full(Crowd("acme", 1003, 1000))
    other, third = drive.neighbour("other"), drive.neighbour("third")
    async with drive.unchanged():
        assert await drive.submit("m2") == ["BUSY", "tenant", "1003", "1000", "1000"]
        # A session that is not there yet would be the tenant's as well.
        assert (await other.submit("m1", create=ACME))[:2] == ["BUSY", "tenant"]
        assert (await drive.submit("m1"))[0] == "DUPLICATE"
    assert (await other.submit("m1", create=ACMES))[0] == "ACCEPTED"
    assert (await third.submit("m1"))[0] == "ACCEPTED"


async def test_the_tenant_is_that_of_the_session_whoever_asks(drive: Driver) -> None:
    await drive.submit("m1", create=ACMES)
    await drive.full(Crowd("acme", 9, 9))
    assert (await drive.submit("m2", create=ACME))[0] == "ACCEPTED"


async def test_a_full_fleet_takes_no_message(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.full(Crowd("acme", 3, 2), Crowd(EVERYBODY, 9, 8))
    other = drive.neighbour()
    async with drive.unchanged():
        assert await drive.submit("m2") == ["BUSY", "fleet", "9", "8", "1000"]
        assert (await other.submit("m1", create=ACMES))[:2] == ["BUSY", "fleet"]
        assert await other.submit("m1", create=ACME) == ["BUSY", "tenant", "3", "2", "1000"]


@pytest.mark.parametrize("policy", ["latest", "interrupt", "rollback", "steer", "debounce"])
async def test_no_policy_gets_past_it_and_none_does_half_of_its_work(
    drive: Driver, policy: str
) -> None:
    await drive.run("m1")
    await drive.full(Crowd(EVERYBODY, 9, 9))
    async with drive.unchanged():
        assert (await drive.submit("m2", policy=policy, quiet_ms=9, max_wait_ms=9))[0] == "BUSY"


async def test_answers_interrupts_and_cancels_pass(drive: Driver) -> None:
    await drive.park("w1")
    await drive.submit("m2")
    await drive.full(Crowd(EVERYBODY, 9, 9))
    assert (await drive.answer("w1"))[0] == "ACCEPTED"
    assert (await drive.interrupt())[0] == "ACCEPTED"
    assert await drive.cancel("m2") == ["CANCELLED"]


async def test_what_is_said_replaces_what_was_said_and_ends_by_itself(drive: Driver) -> None:
    await drive.full(Crowd(EVERYBODY, 9, 9))
    await drive.full(Crowd("acme", 9, 9))
    assert (await drive.submit("m1"))[0] == "ACCEPTED"
    await drive.full()
    assert await drive.redis("HGET", drive.shared("meta"), "full") is None
    await drive.full(Crowd(EVERYBODY, 9, 9), span_ms=-1)
    assert (await drive.submit("m2"))[0] == "ACCEPTED"
    assert (await drive.peek())[6] == ""


async def test_a_look_shows_whose_messages_are_refused_and_for_how_long(drive: Driver) -> None:
    store = drive.stores.worker
    crowded = (Crowd("acme", 12, 10), Crowd(EVERYBODY, 99, 90))
    await store.say_full(0, crowded, span_ms=TTL_MS)
    async with drive.unchanged():
        peeked = await store.peek(0, [], window=0)
    assert peeked.full == crowded
    assert 0 < peeked.full_until_ms - await drive.now() <= TTL_MS
    assert (await store.peek(0, [], window=0, sums=True)).waiting == {}
    await store.say_full(0, (), span_ms=TTL_MS)
    peeked = await store.peek(0, [], window=0)
    assert (peeked.full, peeked.full_until_ms) == ((), 0)


async def test_the_client_is_told_how_many_wait_and_when_to_come_again(drive: Driver) -> None:
    await drive.submit("m1", create=ACME)
    await drive.full(Crowd("acme", 1003, 1000))
    asked = Submit(drive.session, "m2", "d", "turn", "body", ACME)
    async with drive.unchanged():
        with pytest.raises(Busy, match=r"1003 submissions waiting, and 1000 may") as refusal:
            await drive.stores.producer.submit(asked)
    assert (refusal.value.scope, refusal.value.depth, refusal.value.limit) == ("tenant", 1003, 1000)
    assert refusal.value.retry_after.total_seconds() == 1
