"""`purge`: receipts and tombstones that the window has passed by are forgotten, numbers never."""

from __future__ import annotations

from tests.support.driving import SESSION, Driver

WINDOW_MS = 86_400_000


async def test_a_tombstone_is_folded_into_the_floors_once_the_window_has_passed(
    drive: Driver,
) -> None:
    """Hole 34: memory is bounded, and fences and numbers never go back.

    Case S30: of a deleted session only its counters stay, as the partition's floors.
    """
    await drive.finish(await drive.run("m1"))
    await drive.delete()
    before = await drive.head()
    async with drive.unchanged():
        assert await drive.purge() == ["KEPT", "0"]
    assert await drive.purge(window_ms=-1) == ["PURGED", "0"]
    assert await drive.stores.keys(f"*s:{SESSION}:*") == []
    assert await drive.redis("ZSCORE", drive.shared("graves"), SESSION) is None
    again = drive.neighbour()
    await again.submit("m1")
    lease = await again.hold(incarnation="w2:bb", nonce="n2")
    head = await again.head()
    assert lease.fence == int(before["fence"]) + 1
    assert int(head["n"]) > int(before["n"])
    assert int(head["seq"]) >= int(before["seq"])
    assert int(head["life"]) == int(before["life"]) + 1


async def test_the_floors_never_sink(drive: Driver) -> None:
    sessions = ((drive, 3), (drive.neighbour(), 1))
    for session, count in sessions:
        for k in range(count):
            await session.finish(await session.run(f"m{k}", nonce=f"n{k}"))
    for session, _ in sessions:
        await session.delete()
        await session.purge(window_ms=-1)
    assert await drive.redis("HGET", drive.shared("meta"), "floor_turns") == "3"


async def test_a_session_that_lives_again_is_no_tombstone(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.delete()
    await drive.submit("m2")
    assert await drive.purge(window_ms=WINDOW_MS) == ["KEPT", "0"]
    assert await drive.redis("ZSCORE", drive.shared("graves"), SESSION) is None
    assert (await drive.head())["status"] == "ready"


async def test_settled_receipts_are_forgotten_by_age_and_open_ones_never(drive: Driver) -> None:
    """Hole 35: a submission that waits for days keeps its receipt.

    Case S30: an open one is never forgotten.
    """
    await drive.finish(await drive.run("m1"))
    await drive.finish(await drive.run("m2", nonce="n2"))
    await drive.submit("m3")
    async with drive.unchanged():
        assert await drive.purge() == ["KEPT", "0"]
    assert await drive.purge(window_ms=-1, most=1) == ["KEPT", "1"]
    assert await drive.receipt("m1") is None
    assert await drive.receipt("m2") is not None
    assert await drive.purge(window_ms=-1) == ["KEPT", "1"]
    assert await drive.purge(window_ms=-1) == ["KEPT", "0"]
    assert await drive.receipt("m3") is not None


async def test_an_unknown_session_leaves_no_grave(drive: Driver) -> None:
    await drive.submit("m1")
    ghost = drive.neighbour()
    await drive.redis("ZADD", drive.shared("graves"), 1, ghost.session)
    assert await ghost.purge() == ["NONE", "0"]
    assert await drive.redis("ZCARD", drive.shared("graves")) == 0
