"""What a session and a partition hold stays bounded, whoever overfills it: see docs/retention.md.

Receipts, inbox and one endless turn have tests of their own beside their scripts.
"""

from __future__ import annotations

from changeover_shared._events import Event
from tests.support.driving import SESSION, Driver

NOTE = Event(type="warning", code="note")
TURNS = 12
KEPT = 5


async def lengths(drive: Driver) -> dict[str, int]:
    """How many entries each stream of the session has."""
    names = ("inbox", "checkpoint", "journal", "transcript", "turns")
    return {name: int(await drive.redis("XLEN", drive.key(name))) for name in names}


async def test_a_long_session_is_as_long_as_its_bounds(drive: Driver) -> None:
    """A summary has replaced all but the newest items."""
    for k in range(1, TURNS + 1):
        lease = await drive.run(f"m{k}", nonce=f"n{k}")
        await drive.commit(
            lease,
            items=(f"item {k}",),
            events=(NOTE, NOTE),
            context="[]",
            context_epoch=k,
            keep_from=k,
        )
        await drive.finish(lease, turn_record=f'{{"turn":{k}}}')
    found = await lengths(drive)
    assert found == {
        "inbox": 0, "checkpoint": 3, "journal": 2 * TURNS, "transcript": TURNS, "turns": TURNS,
    }  # fmt: skip
    await drive.trim(events=KEPT, records=KEPT, items=TURNS - KEPT + 1)
    assert await lengths(drive) == {
        "inbox": 0, "checkpoint": 3, "journal": KEPT, "transcript": KEPT, "turns": KEPT,
    }  # fmt: skip
    (prefix,) = [key for key in await drive.stores.dump() if f"s:{SESSION}:context:" in key]
    assert prefix == drive.partition.context(SESSION, TURNS)


async def test_what_ended_leaves_its_receipt_alone_and_that_for_the_window(drive: Driver) -> None:
    """What is open keeps its receipt."""
    for k in range(TURNS):
        await drive.finish(await drive.run(f"m{k}", nonce=f"n{k}"))
    await drive.submit("open")
    assert int(await drive.redis("HLEN", drive.key("receipts"))) == TURNS + 2
    await drive.purge(window_ms=-1, most=1000)
    assert int(await drive.redis("HLEN", drive.key("receipts"))) == 2
    assert await drive.receipt("open") is not None
    assert len(await drive.work()) == 1


async def test_lives_that_ended_leave_a_partition_as_it_was(drive: Driver) -> None:
    """Floors instead of tombstones, however many sessions come and go."""
    at = drive.fleet.keys.all[drive.partition.partition]
    sizes = []
    for k in range(TURNS):
        one = drive.neighbour(f"life{k}")
        await one.finish(await one.run("m1", nonce=f"n{k}"))
        await one.delete()
        await one.purge(window_ms=-1)
        sizes.append(len(await drive.stores.dump()))
    assert len(set(sizes)) == 1
    names = await drive.redis("HKEYS", at.named("meta"))
    assert len(names) < 15
    assert await drive.redis("ZCARD", at.named("graves")) == 0
