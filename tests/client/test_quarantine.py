"""Operators and quarantined sessions: stopped, listed, explained, let go on."""

from __future__ import annotations

from typing import Any

import pytest

from changeover import (
    Closed,
    DeadLettered,
    Deleted,
    Ending,
    Invalid,
    Redriven,
    SessionQuarantined,
    SessionRedriven,
    UnknownSession,
)
from changeover_shared._errors import LeaseGone
from changeover_shared._store.quarantine import Quarantine
from changeover_shared._store.store import Store
from tests.client.conftest import World


async def redriven(world: World, *args: Any, **given: Any) -> list[Redriven]:
    return [one async for one in world.client.redrive(*args, **given)]


async def stopped(world: World, session: str = "web:1", **options: Any) -> None:
    await world.client.submit(session, "hello", id="m:1", **options)
    assert await world.client.quarantine(session, reason="too loud", by="ann")


async def test_who_stopped_it_and_why_is_seen_wherever_one_looks(world: World) -> None:
    await stopped(world)
    (one,) = (await world.client.quarantined()).items
    assert (one.session_id, one.cause, one.error, one.by) == (
        "web:1",
        "operator",
        "too loud",
        "ann",
    )
    assert (one.why, one.inbox, one.turn_id) == ("stopped by ann: too loud", 1, None)
    assert (await world.client.session("web:1")).stopped == one.why
    said = await world.client.explain("web:1")
    assert (said.code, said.text) == ("quarantined", f"web:1 is quarantined: {one.why}")
    assert said.remedy == "changeover redrive web:1"
    assert (await world.client.view("web:1")).status == "quarantined"
    (told,) = [e for e in (await world.client.events("web:1")).items if e.type != "message"]
    assert isinstance(told, SessionQuarantined)
    assert (told.cause, told.error, told.by) == ("operator", "too loud", "ann")


async def test_a_holder_is_refused_and_named(world: World) -> None:
    await world.client.submit("web:1", "hello", id="m:1")
    held = await world.acting.take("web:1")
    await held.start()
    assert await world.client.quarantine("web:1", reason="runs away")
    with pytest.raises(LeaseGone):
        await held.complete("too late")
    (one,) = (await world.client.quarantined()).items
    assert (one.worker, one.turn_id) == (world.acting.incarnation, "t_1")
    assert (one.submission_ids, one.doing) == (("m:1",), None)


async def test_stopping_twice_says_so_and_what_has_ended_cannot_be_stopped(world: World) -> None:
    await stopped(world)
    before = await world.stores.dump()
    assert not await world.client.quarantine("web:1", reason="again")
    with pytest.raises(UnknownSession):
        await world.client.quarantine("web:9", reason="r")
    with pytest.raises(Invalid, match="say why"):
        await world.client.quarantine("web:1", reason=" ")
    assert await world.stores.dump() == before
    await world.client.delete("web:1")
    with pytest.raises(Deleted):
        await world.client.quarantine("web:1", reason="r")
    await world.client.submit("web:2", "hello")
    await world.acting.answer("web:2", "Hello.")
    await world.client.close_session("web:2")
    held = await world.acting.take("web:2")
    await held.start()
    await held.close()
    with pytest.raises(Closed):
        await world.client.quarantine("web:2", reason="r")


async def test_a_redriven_session_goes_on_with_the_turn_that_it_had(world: World) -> None:
    await world.client.submit("web:1", "hello", id="m:1")
    held = await world.acting.take("web:1")
    await held.start()
    await world.client.quarantine("web:1", reason="wait for the fix")
    (one,) = await redriven(world, ["web:1"], by="ann")
    assert one == Redriven(session_id="web:1", answer="redriven", status="ready")
    assert (await world.client.quarantined()).items == ()
    newest = (await world.client.events("web:1")).items[0]
    assert isinstance(newest, SessionRedriven) and newest.by == "ann"
    info = await world.client.session("web:1")
    assert (info.status, info.turn_id, info.stopped) == ("ready", "t_1", None)


async def test_the_input_of_the_turn_is_given_up_and_its_outcome_says_why(world: World) -> None:
    await world.client.submit("web:1", "hello", id="m:1")
    held = await world.acting.take("web:1")
    await held.start()
    await world.client.submit("web:1", "next", id="m:2")
    await world.client.quarantine("web:1", reason="poison")
    (one,) = await redriven(world, ["web:1"], drop_input=True)
    assert (one.dropped, one.ended_turn, one.status) == (("m:1",), "t_1", "ready")
    outcome = await world.client.wait("web:1", "m:1")
    assert (outcome.ending, outcome.turn_id) == (Ending.DEAD_LETTERED, "t_1")
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.message) == ("quarantined", "stopped: poison")
    (record,) = (await world.client.turns("web:1")).items
    assert (record.turn_id, record.ending) == ("t_1", Ending.DEAD_LETTERED)
    assert (await world.client.view("web:1")).turn is None
    with pytest.raises(DeadLettered):
        await world.client.run("web:1", "hello", id="m:1")


async def test_a_dry_run_says_what_would_be_given_up_and_changes_nothing(world: World) -> None:
    await world.client.submit("web:1", "hello", id="m:1")
    held = await world.acting.take("web:1")
    await held.start()
    await world.client.quarantine("web:1", reason="poison")
    before = await world.client.view("web:1")
    (one,) = await redriven(world, drop_input=True, dry_run=True)
    assert one == Redriven(
        session_id="web:1",
        answer="would_redrive",
        status="quarantined",
        dropped=("m:1",),
        ended_turn="t_1",
    )
    assert await world.client.view("web:1") == before
    assert (await world.client.session("web:1")).status == "quarantined"


async def test_without_a_turn_the_oldest_message_is_given_up(world: World) -> None:
    await stopped(world)
    await world.client.submit("web:1", "next", id="m:2")
    (one,) = await redriven(world, ["web:1"], drop_input=True)
    assert (one.dropped, one.ended_turn, one.status) == (("m:1",), None, "ready")


async def test_everything_can_be_given_up(world: World) -> None:
    await stopped(world)
    await world.client.submit("web:1", "next", id="m:2")
    (one,) = await redriven(world, ["web:1"], drop_all=True)
    assert (one.dropped, one.status) == (("m:1", "m:2"), "idle")
    assert (await world.client.wait("web:1", "m:2")).ending is Ending.DEAD_LETTERED


async def test_a_message_that_comes_after_the_look_is_neither_dropped_nor_told_as_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stopped(world)
    dead_letter = Quarantine.dead_letter

    async def overtaken(self: Quarantine, *args: Any, **given: Any) -> Any:
        await world.client.submit("web:1", "next", id="m:2")
        return await dead_letter(self, *args, **given)

    monkeypatch.setattr(Quarantine, "dead_letter", overtaken)
    (one,) = await redriven(world, ["web:1"], drop_all=True)
    assert (one.dropped, one.status) == (("m:1",), "ready")
    journal = (await world.client.events("web:1")).items
    (told,) = [event for event in journal if isinstance(event, SessionRedriven)]
    assert told.dropped == ("m:1",)
    assert (await world.client.session("web:1")).inbox == 1


async def test_one_answer_each_whatever_becomes_of_the_others(world: World) -> None:
    await stopped(world)
    await world.client.submit("web:2", "hello")
    answers = await redriven(world, ["web:9", "web:2", "web:1"])
    assert [(one.session_id, one.answer) for one in answers] == [
        ("web:9", "unknown"), ("web:2", "not_quarantined"), ("web:1", "redriven"),
    ]  # fmt: skip
    assert answers[1].status == "ready"


async def test_a_queue_or_all_are_let_go_on(world: World) -> None:
    for number in range(5):
        await stopped(world, f"a:{number}", queue="first")
    await stopped(world, "b:1", queue="second")
    page = await world.client.quarantined(queue="first", limit=3)
    assert len(page.items) == 3 and page.next is not None
    rest = await world.client.quarantined(queue="first", limit=3, cursor=page.next)
    assert len(rest.items) == 2 and rest.next is None
    named = {one.session_id for one in (*page.items, *rest.items)}
    assert named == {f"a:{number}" for number in range(5)}
    assert {one.session_id for one in await redriven(world, queue="first")} == named
    assert [one.session_id for one in await redriven(world)] == ["b:1"]
    assert await redriven(world) == []


async def test_what_cannot_be_meant_is_refused_before_anything_is_done(world: World) -> None:
    await stopped(world)
    for given, said in (
        ({"sessions": "web:1"}, "several ids"),
        ({"sessions": ["web:1"], "queue": "q"}, "not both"),
        ({"drop_input": True, "drop_all": True}, "not both"),
        ({"sessions": ["no id"]}, "printable"),
    ):
        with pytest.raises(Invalid, match=said):
            world.client.redrive(**given)
    assert (await world.client.session("web:1")).status == "quarantined"


async def test_an_interrupt_and_a_cancel_say_that_nobody_runs_the_turn(world: World) -> None:
    await world.client.submit("web:1", "hello", id="m:1")
    held = await world.acting.take("web:1")
    await held.start()
    await world.client.quarantine("web:1", reason="r")
    late = await world.client.cancel("web:1", "m:1")
    assert (late.answer, late.turn_id, late.quarantined) == ("already_running", "t_1", True)
    stop = await world.client.interrupt("web:1")
    assert (stop.answer, stop.turn_id, stop.quarantined) == ("accepted", "t_1", True)
    await redriven(world, ["web:1"])
    again = await world.client.cancel("web:1", "m:1")
    assert (again.answer, again.quarantined) == ("already_running", False)


@pytest.mark.parametrize("meanwhile", ["taken back", "moved"])
async def test_what_happens_between_the_look_and_the_redrive_is_looked_at_again(
    world: World, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """It was told that it is not quarantined, which it was."""
    await stopped(world)
    await world.client.submit("web:1", "again", id="m:2")
    look = Store.snapshots
    looks = 0

    async def look_then(self: Store, *args: Any, **given: Any) -> Any:
        nonlocal looks
        looks += 1
        found = await look(self, *args, **given)
        if looks == 1 and meanwhile == "taken back":
            await world.client.cancel("web:1", "m:1")
        elif looks == 1:
            await world.client.reroute("web:1", "other")
        return found

    monkeypatch.setattr(Store, "snapshots", look_then)
    (one,) = await redriven(world, ["web:1"], drop_input=True)
    dropped = "m:2" if meanwhile == "taken back" else "m:1"
    assert (one.answer, one.dropped) == ("redriven", (dropped,))
    assert (await world.client.wait("web:1", dropped)).ending is Ending.DEAD_LETTERED
