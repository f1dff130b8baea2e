"""The order in which a queue is granted, whoever floods it."""

from __future__ import annotations

from changeover_shared._store.records import Create
from tests.support.driving import Driver

LEVELS = 4
"""From the lowest priority to the highest."""
HEAD_START = 8
"""Grants a level."""


async def put(drive: Driver, name: str, tenant: str, priority: int = 0) -> Driver:
    """A new session of a tenant that is ready."""
    session = drive.neighbour(name)
    create = Create(route=session.route, agent="assistant", tenant=tenant)
    assert (await session.submit("m1", create=create, priority=priority))[0] == "ACCEPTED"
    return session


async def granted_next(drive: Driver, nonce: str) -> str:
    """Grant the first session of the partition, to a holder that keeps it."""
    ((_, first),) = (await drive.peek(window=1))[3]
    (answer,) = await drive.claim(first, nonce=nonce)
    assert answer[0] == "GRANTED"
    return str(first)


async def test_the_lowest_priority_waits_for_a_bounded_number_of_the_highest(drive: Driver) -> None:
    """Hole 46: though one of the highest comes with each grant."""
    low = await put(drive, "low", "patient", -2)
    for i in range(3):
        await put(drive, f"first{i}", "flood", 2)
    grants: list[str] = []
    while low.session not in grants:
        await put(drive, f"more{len(grants)}", "flood", 2)
        grants.append(await granted_next(drive, f"n{len(grants)}"))
        assert len(grants) <= HEAD_START * LEVELS + 1
    assert len(grants) > HEAD_START, "a head start it is"


async def test_a_tenant_with_one_session_waits_for_one_of_each_other_tenant(drive: Driver) -> None:
    for i in range(12):
        await put(drive, f"a{i}", "a")
        await put(drive, f"b{i}", "b")
    for i in range(4):
        await granted_next(drive, f"n{i}")
    small = await put(drive, "small", "c")
    grants = [await granted_next(drive, f"m{i}") for i in range(3)]
    assert small.session in grants


async def test_a_session_that_is_taken_over_keeps_its_place_among_the_others(drive: Driver) -> None:
    """It passes nobody who was before it, and nobody who comes later passes it."""
    flood = [await put(drive, f"f{i}", "flood") for i in range(4)]
    before = await put(drive, "g", "small")
    dying = flood[1]
    await flood[0].hold(nonce="n0")
    for i in range(3):
        await dying.hold(incarnation=f"w{i}:aa", nonce=f"d{i}", solo=True)
        await dying.expire()
        assert await dying.reap() == [["PLACED", "ready"]]
        await dying.set_head(attempts=0)
        await dying.reap()
    await put(drive, "late", "flood")
    assert (await dying.head())["tag"] == "1000"
    order = [await granted_next(drive, f"n{i + 1}") for i in range(4)]
    assert order == [before.session, *(one.session for one in flood[1:])]
