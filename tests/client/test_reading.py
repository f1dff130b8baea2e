"""Looking at sessions: one, many by pages, and what they hold."""

from __future__ import annotations

import pytest

from changeover import (
    AssistantMessage,
    Client,
    Ending,
    Page,
    PartitionMismatch,
    SessionInfo,
    UnknownSession,
    UserMessage,
)
from changeover_shared._settings import read_settings
from tests.client.conftest import World
from tests.support.servers import SERVERS


async def test_a_session_that_runs_names_its_worker_model_and_turn(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    await world.client.submit("web:1", "two", id="m:2")
    held = await world.acting.take("web:1")
    await held.start()
    info = await world.client.session("web:1")
    assert (info.status, info.worker, info.turn_id) == ("running", world.acting.incarnation, "t_1")
    assert (info.model, info.fence, info.revision, info.inbox) == ("main", 1, 1, 1)
    assert info.updated_at >= info.created_at
    await held.complete("Hello.")
    assert (await world.client.session("web:1")).worker is None


async def test_reading_what_nobody_knows_is_refused(world: World) -> None:
    client = world.client
    for read in (client.session, client.view, client.events, client.transcript, client.turns):
        with pytest.raises(UnknownSession):
            await read("web:1")


async def test_sessions_come_newest_first_in_pages_that_hold_each_once(world: World) -> None:
    names = [f"web:{number}" for number in range(11)]
    for name in names:
        await world.client.submit(name, "hello")
    page = await world.client.sessions(limit=4)
    seen = list(page.items)
    await world.client.submit("web:late", "created between two pages")
    while page.next is not None:
        page = await world.client.sessions(limit=4, cursor=page.next)
        seen += page.items
    assert sorted(info.session_id for info in seen) == sorted(names)
    created = [(info.created_at_ms, info.session_id) for info in seen]
    assert created == sorted(created, reverse=True)
    assert (await world.client.sessions(limit=12)).next is None


async def test_sessions_are_found_by_agent_queue_and_status(world: World) -> None:
    await world.client.submit("web:1", "x", agent="support")
    await world.client.submit("web:2", "x", agent="support", queue="gpu")
    await world.client.submit("web:3", "x")
    await world.acting.take("web:2")
    await world.client.submit("web:4", "x", id="m:4")
    await world.client.cancel("web:4", "m:4")

    def names(page: Page[SessionInfo]) -> set[str]:
        assert page.next is None
        return {info.session_id for info in page.items}

    assert names(await world.client.sessions(agent="support")) == {"web:1", "web:2"}
    assert names(await world.client.sessions(queue="gpu")) == {"web:2"}
    assert names(await world.client.sessions(status="running")) == {"web:2"}
    assert names(await world.client.sessions(status="ready")) == {"web:1", "web:3"}
    assert names(await world.client.sessions(status="idle", agent="assistant")) == {"web:4"}
    assert names(await world.client.sessions(status="closed")) == set()


async def test_a_rare_session_is_found_behind_pages_of_others(world: World) -> None:
    await world.client.submit("web:rare", "x", agent="rare")
    for number in range(9):
        await world.client.submit(f"web:{number}", "x")
    page = await world.client.sessions(agent="rare", limit=2)
    assert [info.session_id for info in page.items] == ["web:rare"]
    assert page.next is None


async def test_events_come_newest_first_and_a_cursor_goes_on(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    await world.acting.answer("web:1", "Hello.")
    first = await world.client.events("web:1", limit=3)
    second = await world.client.events("web:1", limit=3, before=first.next)
    third = await world.client.events("web:1", limit=3, before=second.next)
    numbers = [event.seq for page in (first, second, third) for event in page.items]
    assert numbers == [8, 7, 6, 4, 3, 2, 1]
    assert third.next is None


async def test_the_transcript_and_the_turns_come_newest_first(world: World) -> None:
    for text in ("one", "two"):
        await world.client.submit("web:1", text, id=f"m:{text}")
        await world.acting.answer("web:1", f"to {text}")
    page = await world.client.transcript("web:1", limit=3)
    assert [item.n for item in page.items] == [4, 3, 2]
    assert page.items[0].item == AssistantMessage(text="to two")
    assert isinstance(page.items[1].item, UserMessage)
    (oldest,) = (await world.client.transcript("web:1", before=page.next)).items
    assert oldest.n == 1
    turns = await world.client.turns("web:1", limit=1)
    assert [(turn.turn_id, turn.text) for turn in turns.items] == [("t_2", "to two")]
    (older,) = (await world.client.turns("web:1", before=turns.next)).items
    assert (older.turn_id, older.ending) == ("t_1", Ending.COMPLETED)


@pytest.mark.parametrize("world", SERVERS, indirect=True)
async def test_a_client_that_asks_for_another_number_of_partitions_is_refused(
    world: World,
) -> None:
    await world.client.submit("web:1", "one")
    before = await world.stores.dump()
    other = Client(world.url, settings=read_settings(partitions=8))
    with pytest.raises(PartitionMismatch, match="has 4 partitions, you asked for 8"):
        await other.submit("web:1", "two")
    await other.aclose()
    assert await world.stores.dump() == before
