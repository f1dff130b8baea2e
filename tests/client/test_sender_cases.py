"""Sending: what is refused before it is queued, numbers, and handles that hold nothing."""

from __future__ import annotations

import pytest

from changeover import Busy, Client, TooLarge
from changeover_shared._store.requests import JSON_GROWTH, MESSAGE_ENVELOPE
from changeover_shared._words import Ending, Status
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker.testing import ScriptedModel, say
from tests.client.conftest import World
from tests.support.driving import ROUTE, Driver
from tests.support.holding import bench
from tests.support.servers import SERVERS

LIMIT = 1_048_576


@pytest.mark.parametrize("text", ["x" * LIMIT, "界" * 349_525 + "x"])
async def test_a_message_of_the_limit_is_accepted_and_a_byte_more_is_not_queued(
    world: World, text: str
) -> None:
    """Case 001-1: the limit counts bytes of UTF-8, and nothing is sent beyond it."""
    assert len(text.encode()) == LIMIT
    await world.client.submit("web:1", text, id="m:1")
    before = await world.stores.dump()
    with pytest.raises(TooLarge, match="message is 1048577 bytes of UTF-8, the limit is 1048576"):
        await world.client.submit("web:1", text + "x", id="m:2")
    assert await world.stores.dump() == before


async def test_the_script_refuses_what_an_unchecked_client_sends(world: World) -> None:
    """Case 001-1: the store checks again. Difference: it knows the JSON of an operation and not
    its text, so its own limit is that of the largest JSON that a message within the limit has.
    """
    drive = Driver(world.stores, "web:1")
    most = LIMIT * JSON_GROWTH + MESSAGE_ENVELOPE
    assert (await drive.submit("m:1", body="x" * most))[0] == "ACCEPTED"
    async with drive.unchanged():
        reply = await drive.submit("m:2", body="x" * (most + 1))
    assert reply == ["TOO_BIG", str(most + 1), str(most)]


async def test_a_full_queue_is_busy_with_its_depth_and_limit_and_drops_nothing(
    world: World,
) -> None:
    """Case 001-2: the 65th submission is refused at once, the 64 before it stay."""
    for n in range(64):
        await world.client.submit("web:1", f"message {n}", id=f"m:{n}")
    before = await world.stores.dump()
    with pytest.raises(Busy) as caught:
        await world.client.submit("web:1", "one too many", id="m:64")
    assert (caught.value.scope, caught.value.depth, caught.value.limit) == ("inbox", 64, 64)
    assert "holds 64 of 64 submissions; nothing was accepted" in str(caught.value)
    assert await world.stores.dump() == before
    assert len(await world.stores.producer.inbox("web:1")) == 64


async def test_one_place_takes_one_submission_and_takes_the_next_when_it_is_free(
    world: World,
) -> None:
    """Case 001-2: with room for one, the second is refused until the first has ended."""
    drive = Driver(world.stores, "web:1", ROUTE)
    assert (await drive.submit("m1", max_depth=1))[0] == "ACCEPTED"
    async with drive.unchanged():
        assert (await drive.submit("m2", max_depth=1))[:4] == ["BUSY", "inbox", "1", "1"]
    await world.acting.answer("web:1", "an answer")
    assert (await drive.submit("m2", max_depth=1))[0] == "ACCEPTED"


async def test_what_is_accepted_after_a_cutoff_has_a_higher_number(world: World) -> None:
    """Case 001-3: the number is the queue's, it goes up with accepted submissions only, and what
    a worker was granted ends at it."""
    drive = Driver(world.stores, "web:1", ROUTE)
    await drive.submit("before", max_depth=2)
    cutoff = int((await drive.head())["n"])
    held = await world.acting.take("web:1")
    await drive.submit("after", max_depth=2)
    assert (await drive.submit("refused", max_depth=2))[0] == "BUSY"
    granted = held.grant.work.waiting
    assert [(w.n, w.submission_id) for w in granted] == [(cutoff, "before")]
    waiting = {parts[4]: int(n) for n, parts in (await drive.work()).items()}
    assert waiting == {"before": cutoff, "after": cutoff + 1}
    assert int((await drive.head())["n"]) == cutoff + 1


async def test_what_comes_during_a_turn_waits_for_the_next_one() -> None:
    """Case 001-3: a turn sees what was there when it began, however much comes meanwhile."""
    async with bench() as on:
        arrived = False

        async def instruct(_: object) -> str:
            nonlocal arrived
            if not arrived:
                await on.submit("after", "m2")
            arrived = True
            return "x"

        model = ScriptedModel.always(say("ok"))
        app = App(agents=[Agent("bot", model="m", instructions=instruct)], models={"m": model})
        await on.submit("before")
        await on.run(app)
        asked = [[getattr(i, "text", "") for i in request.items] for request in model.requests]
        assert asked == [["before"], ["before", "ok", "after"]]
        assert [r.submission_ids for r in await on.turns()] == [("m1",), ("m2",)]


@pytest.mark.parametrize("world", SERVERS, indirect=True)
async def test_a_handle_keeps_no_session_and_a_late_submission_wakes_it(world: World) -> None:
    """Case 001-4: while clients know the session it is let go as ever, and one that comes when
    all others have gone is heard. Difference: a handle is a name and a connection, so nothing
    ends with the last one.
    """
    assert world.url is not None
    first = Client(world.url, settings=world.settings)
    await first.submit("web:1", "one", id="m:1")
    await world.acting.answer("web:1", "an answer")
    drive = Driver(world.stores, "web:1", ROUTE)
    assert (await drive.status(), await drive.indexes()) == (Status.IDLE, set())
    await first.aclose()
    async with Client(world.url, settings=world.settings) as late:
        await late.submit("web:1", "two", id="m:2")
        assert await drive.indexes() == {"ready"}
        await world.acting.answer("web:1", "another")
        assert (await late.wait("web:1", "m:2")).ending is Ending.COMPLETED
