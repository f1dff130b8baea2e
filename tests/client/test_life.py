"""Deleting sessions one by one and by age: what is open ends, and nothing is left behind."""

from __future__ import annotations

from datetime import timedelta

import pytest

from changeover import Ending, Invalid
from changeover_shared._events import Message
from changeover_shared._ops import MessageOp, digest, encode_op
from changeover_shared._store.records import Create, Submit
from tests.client.conftest import World

NO_TIME = timedelta(0)
LATER_MS = 4_000_000_000_000


async def test_a_deletion_ends_what_is_open_and_a_wait_for_it(world: World) -> None:
    for name in ("m:1", "m:2"):
        await world.client.submit("web:1", "hello", id=name)
    held = await world.acting.take("web:1")
    await held.start()
    assert await world.client.delete("web:1", reason="asked for")
    for name in ("m:1", "m:2"):
        assert (await world.client.wait("web:1", name)).ending is Ending.CANCELLED
    info = await world.client.session("web:1")
    assert (info.status, info.inbox, info.worker) == ("deleted", 0, None)
    assert (await world.client.view("web:1")).status == "deleted"
    assert (await world.client.sessions()).items == ()


async def test_a_deletion_may_be_repeated_and_an_unknown_session_is_none(world: World) -> None:
    await world.client.submit("web:1", "hello")
    assert await world.client.delete("web:1")
    before = await world.stores.dump()
    assert not await world.client.delete("web:1")
    assert not await world.client.delete("web:2")
    assert await world.stores.dump() == before


async def test_a_follower_sees_the_end(world: World) -> None:
    receipt = await world.client.submit("web:1", "hello")
    await world.client.delete("web:1", reason="old")
    seen = [event.type async for event in world.client.follow("web:1", after=receipt.seq)]
    assert seen == ["submission_cancelled", "session_deleted"]


async def test_a_message_begins_the_next_life_with_higher_numbers(world: World) -> None:
    first = await world.client.submit("web:1", "hello")
    await world.client.delete("web:1")
    again = await world.client.submit("web:1", "hello again")
    assert again.seq > first.seq + 1
    await world.acting.answer("web:1", "Hello.")
    outcome = await world.client.wait("web:1", again.submission_id)
    assert (outcome.ending, outcome.text) == (Ending.COMPLETED, "Hello.")
    events = (await world.client.events("web:1")).items
    said = [event.text for event in events if isinstance(event, Message)]
    assert said == ["hello again"]


async def test_a_session_is_moved_to_another_queue_while_nobody_holds_it(world: World) -> None:
    await world.client.submit("web:1", "hello")
    assert await world.client.reroute("web:1", "slow")
    assert (await world.client.session("web:1")).queue == "slow"
    assert not await world.client.reroute("web:2", "slow")
    with pytest.raises(Invalid, match="queue"):
        await world.client.reroute("web:1", "no such queue")


async def test_a_purge_without_a_span_deletes_no_session(world: World) -> None:
    await world.client.submit("web:1", "hello")
    await world.acting.answer("web:1", "Hello.")
    before = await world.stores.dump()
    purged = await world.client.purge()
    assert (purged.sessions, purged.tombstones, purged.receipts) == ((), 0, 0)
    assert await world.stores.dump() == before


async def test_a_purge_takes_what_is_old_enough_and_of_its_kind(world: World) -> None:
    for session in ("idle", "waits", "closed"):
        await world.client.submit(session, "hello", id=session)
    for session in ("idle", "closed"):
        await world.acting.answer(session, "Hello.")
    await world.client.close_session("closed")
    held = await world.acting.take("closed")
    await held.start()
    await held.close()
    would = await world.client.purge(closed_for=NO_TIME, dry_run=True)
    assert would.sessions == ("closed",)
    assert (await world.client.session("closed")).status == "closed"
    assert (await world.client.purge(closed_for="1h", idle_for="1h")).sessions == ()
    assert (await world.client.purge(closed_for=NO_TIME)).sessions == ("closed",)
    assert (await world.client.purge(idle_for=NO_TIME)).sessions == ("idle",)
    assert [one.session_id for one in (await world.client.sessions()).items] == ["waits"]


async def test_a_span_that_is_none_is_refused(world: World) -> None:
    with pytest.raises(Invalid, match="closed_for"):
        await world.client.purge(closed_for="soon")


async def test_a_purge_spares_what_waits_for_its_time(world: World) -> None:
    op = MessageOp(text="remind me")
    await world.stores.producer.submit(
        Submit(
            session_id="web:1",
            submission_id="m:1",
            digest=digest(op),
            cls="turn",
            body=encode_op(op),
            create=Create(route="assistant@1", agent="assistant"),
            due_ms=LATER_MS,
            event=Message(text=op.text),
        )
    )
    assert (await world.client.session("web:1")).status == "idle"
    assert (await world.client.purge(idle_for=NO_TIME, dry_run=True)).sessions == ()
    assert (await world.client.purge(idle_for=NO_TIME)).sessions == ()
    assert (await world.client.session("web:1")).inbox == 1


async def test_a_purge_forgets_every_old_tombstone_however_many(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("changeover._purge.LISTED", 2)
    names = [f"web:{k}" for k in range(12)]
    for name in names:
        await world.client.submit(name, "hello")
        await world.client.delete(name)
    for name in names[2:]:
        head = world.stores.producer.keys.of(name).session(name, "head")
        await world.stores.executor.command("HSET", head, "deleted_ms", 1)
    for name in names[:2]:
        await world.client.submit(name, "hello again")
    assert (await world.client.purge()).tombstones == 10
    for at in world.stores.producer.keys.all:
        assert await world.stores.producer.upkeep.graves(at.partition) == ()
