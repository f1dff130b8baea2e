"""What waits is counted per partition and tenant, by whatever script changes it.

That the sums are right after everything that can happen to a session is said in `test_leaks.py`.
"""

from __future__ import annotations

from typing import Any

from changeover_shared._store.records import Create
from tests.support.driving import ROUTE, Driver
from tests.support.leaks import held, leaks

ACME = Create(ROUTE, "assistant", tenant="acme")


async def miscounted(drive: Driver) -> list[str]:
    found = leaks(await held(drive.stores.executor, drive.stores.producer.keys))
    return [leak for leak in found if "wait, and there are" in leak]


async def counted(drive: Driver) -> str | None:
    value = await drive.redis("HGET", drive.key("head"), "counted")
    return None if value is None else str(value)


async def test_what_waits_counts_for_all_and_for_its_tenant(drive: Driver) -> None:
    assert await drive.sums() == {}
    await drive.submit("m1", create=ACME)
    await drive.submit("m2", create=ACME)
    await drive.neighbour().submit("m1")
    assert await drive.sums() == {"*": 3, "acme": 2}


async def test_what_a_turn_has_taken_waits_no_more_and_what_it_gives_back_does(
    drive: Driver,
) -> None:
    await drive.submit("m1", create=ACME)
    await drive.submit("m2", create=ACME)
    lease = await drive.hold()
    assert await drive.sums() == {"*": 2, "acme": 2}
    await drive.commit(lease, "start", take=(1,))
    assert await drive.sums() == {"*": 1, "acme": 1}
    await drive.commit(lease, "end", end="requeue", next="release")
    assert await drive.sums() == {"*": 2, "acme": 2}


async def test_answers_and_controls_do_not_wait(drive: Driver) -> None:
    await drive.park("w1")
    before = await drive.sums()
    assert (await drive.answer("w1"))[0] == "ACCEPTED"
    assert (await drive.interrupt())[0] == "ACCEPTED"
    assert await drive.sums() == before == {}


async def test_cancel_latest_and_delete_take_away_what_they_end(drive: Driver) -> None:
    for name in ("m1", "m2", "m3"):
        await drive.submit(name, create=ACME)
    assert await drive.cancel("m1") == ["CANCELLED"]
    assert await drive.sums() == {"*": 2, "acme": 2}
    for name in ("l1", "l2", "l3"):
        await drive.submit(name, create=ACME, policy="latest", key="latest")
        assert await drive.sums() == {"*": 3, "acme": 3}
    await drive.delete()
    assert await drive.sums() == {}
    assert await drive.redis("EXISTS", drive.shared("waiting")) == 0


async def test_a_repeat_and_a_refusal_count_nothing(drive: Driver) -> None:
    await drive.submit("m1", create=ACME)
    for _ in range(3):
        assert (await drive.submit("m1", create=ACME))[0] == "DUPLICATE"
    assert (await drive.submit("m2", create=ACME, max_depth=1))[0] == "BUSY"
    assert await drive.sums() == {"*": 1, "acme": 1}


# What a count does when it was wrong


async def test_a_sum_that_is_too_low_never_falls_below_nothing(drive: Driver) -> None:
    await drive.submit("m1", create=ACME)
    await drive.submit("m2", create=ACME)
    await drive.redis("HSET", drive.shared("waiting"), "*", 1, "acme", 1)
    await drive.cancel("m1")
    await drive.cancel("m2")
    assert await drive.sums() == {}


async def test_a_session_of_an_older_release_is_counted_once_anything_happens_to_it(
    drive: Driver,
) -> None:
    await drive.submit("m1", create=ACME)
    await drive.redis("HDEL", drive.key("head"), "counted")
    await drive.redis("DEL", drive.shared("waiting"))
    await drive.defer()
    assert await drive.sums() == {"*": 1, "acme": 1}


async def test_a_new_count_makes_every_sum_right(drive: Driver) -> None:
    await drive.submit("m1", create=ACME)
    await drive.submit("m2", create=ACME)
    other = drive.neighbour()
    await other.submit("m1")
    await drive.redis("HSET", drive.shared("waiting"), "*", 70, "acme", 9, "gone", 8)
    assert await drive.recount(1) == ["OK"]
    assert await drive.sums() == {"*": 2, "acme": 2}
    assert await drive.recount(1, other.session) == ["OK"]
    assert await drive.sums() == {"*": 3, "acme": 2}
    assert (await counted(drive), await miscounted(drive)) == ("2|1", [])
    async with drive.unchanged():
        await drive.recount(1, drive.session, other.session, "nobody")
        await drive.recount(0, drive.session)


async def test_what_happens_between_the_pages_of_a_new_count_is_in_it(drive: Driver) -> None:
    await drive.submit("m1", create=ACME)
    other = drive.neighbour()
    await other.submit("m1", create=ACME)
    await drive.recount(1)
    await other.submit("m2", create=ACME)
    assert await drive.sums() == {"*": 3, "acme": 3}
    await drive.recount(1, other.session)
    assert await drive.sums() == {"*": 3, "acme": 3}


async def test_a_deleted_session_is_not_counted_anew(drive: Driver) -> None:
    await drive.submit("m1", create=ACME)
    await drive.delete()
    head: Any = await drive.redis("HGETALL", drive.key("head"))
    await drive.recount(1)
    assert await drive.redis("HGETALL", drive.key("head")) == head
    assert await drive.sums() == {}
