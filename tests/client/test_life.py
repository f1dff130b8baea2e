"""Deleting sessions one by one and by age: what is open ends, and nothing is left behind."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from changeover import Ending, Invalid, Purged
from changeover_shared._events import Message
from changeover_shared._ops import MessageOp, digest, encode_op
from changeover_shared._store.records import Create, Submit
from tests.client.conftest import World

NO_TIME = timedelta(0)
LATER_MS = 300 * 86_400_000
HOUR_MS = 3_600_000


async def close(world: World, session: str) -> None:
    await world.client.close_session(session)
    held = await world.acting.take(session)
    await held.start()
    await held.close()


async def aged(world: World, session: str, *, days: int) -> None:
    """Let the session's newest event be so old."""
    head = world.stores.producer.keys.of(session).session(session, "head")
    at_ms = await world.stores.producer.read_time() - days * 24 * HOUR_MS
    await world.stores.executor.command("HSET", head, "at_ms", at_ms)


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


async def test_a_purge_without_a_span_deletes_no_session_that_is_young_or_idle(
    world: World,
) -> None:
    """30 days for closed sessions, and idle ones stay for ever."""
    for session in ("idle", "closed"):
        await world.client.submit(session, "hello")
        await world.acting.answer(session, "Hello.")
    await close(world, "closed")
    await aged(world, "idle", days=1000)
    await aged(world, "closed", days=29)
    before = await world.stores.dump()
    assert await world.client.purge() == Purged()
    assert await world.stores.dump() == before


async def test_a_purge_without_a_span_does_what_the_settings_say(world: World) -> None:
    for session in ("idle", "closed"):
        await world.client.submit(session, "hello")
        await world.acting.answer(session, "Hello.")
        await aged(world, session, days=31)
    await close(world, "closed")
    await aged(world, "closed", days=31)
    never = await world.client.purge(closed_for="never", idle_for="never", dry_run=True)
    assert never.sessions == ()
    assert (await world.client.purge()).sessions == ("closed",)
    world.client._settings = world.settings.model_copy(update={"idle_ttl": timedelta(days=30)})
    assert (await world.client.purge()).sessions == ("idle",)


async def test_a_purge_trims_what_no_worker_claims_any_more(world: World) -> None:
    """Journal and turn records; the transcript stays while no summary has replaced it."""
    producer = world.stores.producer
    small = world.settings.model_copy(update={"journal_events": 10, "turns_kept": 2})
    for upkept in (world.client._store, producer):
        assert upkept is not None
        upkept.settings = upkept.upkeep._settings = small
    for k in range(6):
        await world.client.submit("web:1", f"message {k}", id=f"m:{k}")
        await world.acting.answer("web:1", f"answer {k}")
    head = await world.stores.worker.read_head("web:1")
    assert head is not None and head.first_seq == 1
    assert (await world.client.purge()).trimmed == 1
    left = (await world.client.events("web:1")).items
    assert (left[0].seq, left[-1].seq > head.seq - 10) == (head.seq, True)
    trimmed = await world.stores.worker.read_head("web:1")
    assert trimmed is not None and trimmed.first_seq == head.seq - 9
    assert [turn.turn_id for turn in (await world.client.turns("web:1")).items] == ["t_6", "t_5"]
    assert len((await world.client.transcript("web:1")).items) == 12
    assert (await world.client.purge()).trimmed == 0


async def test_a_purge_forgets_all_aged_receipts_however_many(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hole 35: a session that gets no more submissions forgets its receipts with a purge."""
    monkeypatch.setattr("changeover_shared._store.upkeep.RECEIPTS_AT_ONCE", 3)
    for k in range(10):
        await world.client.submit("web:1", "hello", id=f"m:{k}")
    await world.acting.answer("web:1", "Hello.")
    for k in range(9):
        assert await world.client.cancel("web:1", f"m:{k + 1}")
    settled = world.stores.producer.keys.of("web:1").session("web:1", "settled")
    names = await world.stores.executor.command("ZRANGE", settled, 0, -2)
    for name in names:
        await world.stores.executor.command("ZADD", settled, "XX", 1, name)
    assert (await world.client.purge()).receipts == len(names) == 19
    assert await world.stores.executor.command("ZCARD", settled) == 1


async def test_a_purge_takes_workers_that_are_long_gone_out_of_the_registry(
    world: World,
) -> None:
    now_ms = await world.stores.producer.read_time()
    workers = world.stores.producer.keys.workers
    for name, said in (
        ("lives", json.dumps({"renewed_at_ms": now_ms})),
        ("slept", json.dumps({"renewed_at_ms": now_ms - 23 * HOUR_MS, "state": "new"})),
        ("gone", json.dumps({"renewed_at_ms": now_ms - 25 * HOUR_MS, "state": "new"})),
        ("strange", "says nothing"),
    ):
        await world.stores.executor.command("HSET", workers, name, said)
    await world.client.purge()
    left = await world.stores.executor.command("HKEYS", workers)
    assert sorted(left) == [b"lives", b"slept"]


async def test_a_purge_forgets_the_order_of_routes_that_no_session_has(world: World) -> None:
    await world.client.submit("web:1", "hello")
    at = world.stores.producer.keys.of("web:1")
    await world.client.reroute("web:1", "slow")
    await world.client.purge()
    found = await world.stores.executor.command("HKEYS", at.named("vt"))
    assert {field.split(b":")[1] for field in found} == {b"slow@1"}


async def test_a_purge_counts_anew_what_waits(world: World) -> None:
    """Whatever a backup or a hand at the keys has made of the sums."""
    stores = world.stores
    for i in range(5):
        await world.client.submit(f"web:{i}", "hello")
    for at in stores.producer.keys.all:
        await stores.executor.command("HSET", at.named("waiting"), "*", 70, "gone", 7)
    await world.client.purge()
    looks = [
        await stores.worker.peek(at.partition, [], window=0, sums=True)
        for at in stores.producer.keys.all
    ]
    assert sum(look.waiting.get("*", 0) for look in looks) == 5
    assert {whose for look in looks for whose in look.waiting} == {"*"}


async def test_a_purge_takes_what_is_old_enough_and_of_its_kind(world: World) -> None:
    for session in ("idle", "waits", "closed"):
        await world.client.submit(session, "hello", id=session)
    for session in ("idle", "closed"):
        await world.acting.answer(session, "Hello.")
    await close(world, "closed")
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
            due_ms=await world.stores.producer.read_time() + LATER_MS,
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
