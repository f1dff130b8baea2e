"""Following: each event once, in order, by number, through gaps and lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from changeover import (
    AssistantSaid,
    Client,
    Delta,
    Event,
    Gap,
    MessageEvent,
    SessionClosed,
    StoreUnavailable,
    SubmissionCancelled,
    TurnAbortedEvent,
    TurnCompleted,
    UnknownSession,
    UnknownSubmission,
    View,
)
from tests.client.conftest import World
from tests.support.servers import SERVERS

pytestmark = pytest.mark.timeout(30)


async def collected(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


async def test_a_stream_ends_with_its_own_submission_and_misses_nothing(world: World) -> None:
    events = world.client.stream("web:1", "hello", id="m:1")
    first = asyncio.ensure_future(anext(events))
    await _accepted(world, "web:1")
    held = await world.acting.take("web:1")
    await held.start()
    await held.stream("Hel", "lo.")
    seen = [await first, *[await anext(events) for _ in range(4)]]
    assert "".join(event.text for event in seen if isinstance(event, Delta)) == "Hello."
    await held.say("Hello.")
    await held.complete("Hello.")
    await world.client.submit("web:1", "more", id="m:2")
    seen += await collected(events)
    assert isinstance(seen[-1], TurnCompleted)
    assert [event.seq for event in seen] == list(range(2, 10))
    assert any(isinstance(event, AssistantSaid) and event.text == "Hello." for event in seen)


async def test_a_stream_of_a_repeated_message_shows_the_answer_that_it_had(world: World) -> None:
    await world.client.submit("web:1", "hello", id="m:1")
    await world.acting.answer("web:1", "Hello.")
    await world.client.submit("web:1", "more", id="m:2")
    await world.acting.answer("web:1", "More.")
    seen = await collected(world.client.stream("web:1", "hello", id="m:1"))
    assert [event.text for event in seen if isinstance(event, TurnCompleted)] == ["Hello."]


async def test_following_resumes_by_number_without_loss_or_repeat(world: World) -> None:
    await world.client.submit("web:1", "hello", id="m:1")
    await world.acting.answer("web:1", "Hello.")
    whole = await collected(world.client.follow("web:1", after="start", until="m:1"))
    assert isinstance(whole[0], MessageEvent)
    for cut in range(len(whole)):
        rest = world.client.follow("web:1", after=whole[cut].seq, until="m:1")
        assert await collected(rest) == whole[cut + 1 :]


async def test_a_submission_that_ended_before_the_number_ends_the_following_at_once(
    world: World,
) -> None:
    await world.client.submit("web:1", "hello", id="m:1")
    await world.acting.answer("web:1", "Hello.")
    await world.client.submit("web:1", "more", id="m:2")
    assert await collected(world.client.follow("web:1", after="now", until="m:1")) == []


async def test_a_submission_that_ends_without_a_turn_ends_the_following(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    await world.client.submit("web:1", "two", id="m:2")
    await world.client.cancel("web:1", "m:2")
    seen = await collected(world.client.follow("web:1", after="start", until="m:2"))
    assert isinstance(seen[-1], SubmissionCancelled)


async def test_an_interrupt_is_followed_to_the_end_of_its_turn(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    held = await world.acting.take("web:1")
    await held.start()
    interrupted = await world.client.interrupt("web:1", id="i:1")
    assert interrupted.answer == "accepted"
    following = asyncio.ensure_future(
        collected(world.client.follow("web:1", after="start", until="i:1"))
    )
    await held.abort()
    assert isinstance((await following)[-1], TurnAbortedEvent)
    await world.client.submit("web:1", "two", id="m:2")
    again = await collected(world.client.follow("web:1", after="start", until="i:1"))
    assert isinstance(again[-1], TurnAbortedEvent)


@pytest.mark.parametrize("world", SERVERS, indirect=True)
async def test_following_from_now_shows_only_what_comes(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    async with aclosing(world.client.follow("web:1")) as events:
        following = asyncio.ensure_future(anext(events))
        await _blocked(world)
        await world.client.submit("web:1", "two", id="m:2")
        event = await following
    assert isinstance(event, MessageEvent)
    assert event.text == "two"


async def test_a_closed_session_ends_the_following_when_it_has_nothing_more_to_tell(
    world: World,
) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    await world.client.cancel("web:1", "m:1")
    await world.client.close_session("web:1")
    held = await world.acting.take("web:1")
    await held.start()
    await world.client.submit("web:1", "two", id="m:2")
    following = asyncio.ensure_future(collected(world.client.follow("web:1", after="start")))
    await held.close()
    seen = await following
    assert any(isinstance(event, SessionClosed) for event in seen)
    assert isinstance(seen[-1], SubmissionCancelled)
    assert seen[-1].submission_id == "m:2"
    assert await collected(world.client.follow("web:1", after="now")) == []


async def test_what_retention_has_taken_is_told_as_a_gap(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    await world.acting.answer("web:1", "Hello.")
    await _trim(world, "web:1", first_seq=5)
    seen = await collected(world.client.follow("web:1", after=2, until="m:1"))
    assert seen[0] == Gap(seq=4, first=3, last=4)
    assert [event.seq for event in seen[1:]] == [6, 7, 8]
    at_the_edge = await collected(world.client.follow("web:1", after=4, until="m:1"))
    assert at_the_edge == seen[1:]


async def test_a_follower_that_retention_overtakes_is_told_of_the_gap(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    events = world.client.follow("web:1", after="start", until="m:1")
    assert isinstance(await anext(events), MessageEvent)
    await world.acting.answer("web:1", "Hello.")
    await _trim(world, "web:1", first_seq=7)
    seen = await collected(events)
    assert seen[0] == Gap(seq=6, first=2, last=6)
    assert [event.seq for event in seen[1:]] == [7, 8]


async def test_a_submission_whose_ending_is_trimmed_ends_the_following_with_the_gap(
    world: World,
) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    await world.acting.answer("web:1", "Hello.")
    await world.client.submit("web:1", "two", id="m:2")
    await _trim(world, "web:1", first_seq=9)
    seen = await collected(world.client.follow("web:1", after="start", until="m:1"))
    assert seen == [Gap(seq=8, first=1, last=8)]


async def test_deltas_that_left_with_their_step_are_no_gap(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    await world.acting.answer("web:1", "Hello.")
    seen = await collected(world.client.follow("web:1", after="start", until="m:1"))
    assert [event.seq for event in seen] == [1, 2, 3, 4, 6, 7, 8]
    assert not any(isinstance(event, Gap) for event in seen)


async def test_following_what_nobody_knows_is_refused(world: World) -> None:
    for after in ("start", "now", 7):
        with pytest.raises(UnknownSession):
            await anext(world.client.follow("web:1", after=after))
    await world.client.submit("web:1", "one", id="m:1")
    with pytest.raises(UnknownSubmission):
        await anext(world.client.follow("web:1", after="start", until="m:2"))


@pytest.mark.parametrize("world", SERVERS, indirect=True)
async def test_a_follower_whose_connections_are_cut_goes_on_at_its_number(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    following = asyncio.ensure_future(
        collected(world.client.follow("web:1", after="start", until="m:1"))
    )
    held = await world.acting.take("web:1")
    await held.start()
    for _ in range(3):
        await _blocked(world)
        killed = await world.stores.executor.command("CLIENT", "KILL", "TYPE", "normal")
        assert killed > 0
    await held.stream("Hel", "lo.")
    await held.complete("Hello.")
    assert [event.seq for event in await following] == list(range(1, 8))


async def test_the_first_read_fails_at_once_when_redis_is_away() -> None:
    client = Client("redis://127.0.0.1:1/0")
    with pytest.raises(StoreUnavailable):
        await anext(client.follow("web:1"))
    with pytest.raises(StoreUnavailable):
        await anext(client.stream("web:1", "hello"))


async def test_a_view_is_what_following_from_the_start_folds_to(world: World) -> None:
    await world.client.submit("web:1", "hello", id="m:1")
    await world.acting.answer("web:1", "Hello.")
    await world.client.submit("web:1", "more", id="m:2")
    view = await world.client.view("web:1")
    folded = View().apply_all(await collected(world.client.follow("web:1", after=0, until="m:1")))
    assert view.seq == (await world.client.session("web:1")).seq
    assert (folded.messages, folded.usage) == (view.messages[:2], view.usage)
    assert [(m.role, m.text) for m in view.messages] == [
        ("user", "hello"),
        ("assistant", "Hello."),
        ("user", "more"),
    ]
    assert (view.status, view.complete) == ("ready", True)


async def test_a_view_of_a_trimmed_journal_says_that_it_is_not_complete(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    await world.acting.answer("web:1", "Hello.")
    await _trim(world, "web:1", first_seq=6)
    view = await world.client.view("web:1")
    assert (view.complete, view.seq) == (False, 8)
    assert [m.text for m in view.messages] == ["Hello."]


async def _accepted(world: World, session_id: str) -> None:
    await world.stores.producer.wait_journal(session_id, after=0, block_ms=10_000)


async def _blocked(world: World) -> None:
    """Wait until the follower waits inside Redis."""
    info = b""
    while b"blocked_clients:1" not in info:
        info = await world.stores.executor.command("INFO", "clients")


async def _trim(world: World, session_id: str, *, first_seq: int) -> None:
    """What retention will do: drop the oldest events and note the first that is left."""
    keys = world.stores.producer.keys.of(session_id)
    command = world.stores.executor.command
    journal = keys.session(session_id, "journal")
    await command("XTRIM", journal, "MINID", f"{first_seq}-0")
    await command("HSET", keys.session(session_id, "head"), "first_seq", first_seq)
