"""Interrupting, cancelling, changing the model: answers, and never a wrong turn."""

from __future__ import annotations

import pytest

from changeover import Ending, Invalid, UnknownSession
from changeover_shared._ops import CompactOp, RollbackOp, SetModelOp, decode_op
from tests.client.conftest import World


async def test_an_interrupt_names_the_turn_that_it_stops_and_a_second_one_is_merged(
    world: World,
) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    held = await world.acting.take("web:1")
    await held.start()
    first = await world.client.interrupt("web:1", reason="too slow", id="i:1")
    assert (first.answer, first.turn_id) == ("accepted", "t_1")
    assert (await world.client.interrupt("web:1", id="i:2")).answer == "merged"
    again = await world.client.interrupt("web:1", reason="too slow", id="i:1")
    assert (again.answer, again.turn_id) == ("duplicate", "t_1")
    await held.abort()
    assert (await world.client.wait("web:1", "m:1")).ending is Ending.ABORTED
    ended = await world.client.wait("web:1", "i:1")
    assert (ended.ending, ended.turn_id, ended.text) == (Ending.COMPLETED, "t_1", "")
    await world.client.submit("web:1", "two", id="m:2")
    held = await world.acting.take("web:1")
    await held.start()
    late = await world.client.interrupt("web:1", reason="too slow", id="i:1")
    assert (late.answer, late.turn_id) == ("duplicate", None)
    await held.complete("Hello.")


async def test_an_interrupt_without_a_turn_is_an_answer_and_stops_nothing_later(
    world: World,
) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    nothing = await world.client.interrupt("web:1")
    assert (nothing.answer, nothing.turn_id) == ("no_turn", None)
    await world.acting.answer("web:1", "Hello.")
    assert (await world.client.wait("web:1", "m:1")).ending is Ending.COMPLETED


async def test_an_interrupt_of_an_ended_turn_leaves_the_running_one_alone(world: World) -> None:
    for name in ("m:1", "m:2"):
        await world.client.submit("web:1", "hello", id=name)
    await world.acting.answer("web:1", "Hello.")
    held = await world.acting.take("web:1")
    await held.start()
    late = await world.client.interrupt("web:1", turn="t_1")
    assert (late.answer, late.turn_id) == ("stale_turn", "t_2")
    await held.complete("Hello again.")
    assert (await world.client.wait("web:1", "m:2")).ending is Ending.COMPLETED


async def test_an_interrupt_of_a_closed_session_finds_no_turn(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    await world.client.cancel("web:1", "m:1")
    await world.client.close_session("web:1")
    held = await world.acting.take("web:1")
    await held.start()
    await held.close()
    assert (await world.client.interrupt("web:1")).answer == "no_turn"


async def test_interrupting_or_steering_what_nobody_knows_is_refused_and_creates_nothing(
    world: World,
) -> None:
    await world.client.submit("web:1", "one")
    before = await world.stores.dump()
    with pytest.raises(UnknownSession):
        await world.client.interrupt("web:2")
    with pytest.raises(UnknownSession):
        await world.client.set_model("web:2", "fast")
    with pytest.raises(UnknownSession):
        await world.client.close_session("web:2")
    assert set(await world.stores.dump()) - set(before) <= {_meta(world, "web:2")}


async def test_a_cancel_takes_back_what_waits_and_says_what_else_became_of_it(
    world: World,
) -> None:
    for name in ("m:1", "m:2", "m:3"):
        await world.client.submit("web:1", "hello", id=name)
    await world.acting.answer("web:1", "Hello.")
    held = await world.acting.take("web:1")
    await held.start()
    ended = await world.client.cancel("web:1", "m:1")
    assert (ended.answer, ended.ending, ended.turn_id) == (
        "already_ended",
        Ending.COMPLETED,
        "t_1",
    )
    running = await world.client.cancel("web:1", "m:2")
    assert (running.answer, running.turn_id) == ("already_running", "t_2")
    assert (await world.client.cancel("web:1", "m:3")).answer == "cancelled"
    again = await world.client.cancel("web:1", "m:3")
    assert (again.answer, again.ending) == ("already_ended", Ending.CANCELLED)
    assert (await world.client.cancel("web:1", "m:4")).answer == "unknown"
    assert (await world.client.cancel("web:2", "m:1")).answer == "unknown"
    await held.complete("Hello again.")
    assert (await world.client.wait("web:1", "m:2")).ending is Ending.COMPLETED
    assert (await world.client.session("web:1")).status == "idle"


async def test_a_model_is_changed_in_order_with_what_waits(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    receipt = await world.client.set_model("web:1", "fast", id="c:1")
    assert (receipt.answer, receipt.position) == ("accepted", 1)
    entry = (await world.stores.producer.inbox("web:1"))[1]
    assert decode_op(entry.body) == SetModelOp(model="fast")
    await world.acting.answer("web:1", "Hello.")
    held = await world.acting.take("web:1")
    await held.start()
    await held.change_model("fast")
    assert (await world.client.wait("web:1", "c:1")).ending is Ending.COMPLETED
    events = [e async for e in world.client.follow("web:1", after="start", until="c:1")]
    assert events[-1].type == "model_changed"


async def test_a_compaction_and_a_rollback_wait_their_turn(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    compacting = await world.client.compact("web:1", id="c:1")
    rolling_back = await world.client.rollback("web:1", to="t_1", id="r:1")
    assert [(r.answer, r.position) for r in (compacting, rolling_back)] == [
        ("accepted", 1),
        ("accepted", 2),
    ]
    assert (await world.client.compact("web:1", id="c:1")).answer == "duplicate"
    entries = await world.stores.producer.inbox("web:1")
    assert [decode_op(entry.body) for entry in entries[1:]] == [CompactOp(), RollbackOp(to="t_1")]
    for call in (world.client.compact("web:9"), world.client.rollback("web:9", to="t_1")):
        with pytest.raises(UnknownSession):
            await call
    with pytest.raises(Invalid, match="to: "):
        await world.client.rollback("web:1", to="t 1")


def _meta(world: World, session_id: str) -> str:
    return world.stores.producer.keys.of(session_id).named("meta")
