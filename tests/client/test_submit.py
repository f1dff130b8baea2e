"""Submitting: receipts, refusals, many at once, and waiting for the ending."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from changeover import (
    CancelledSubmission,
    Client,
    Closed,
    Ending,
    IdReused,
    Message,
    Receipt,
    Refused,
    StoreUnavailable,
    Submission,
    TooLarge,
    TurnAborted,
    TurnFailed,
    UnknownSession,
    UnknownSubmission,
    WaitTimeout,
)
from changeover_shared._ops import MessageOp, decode_op
from tests.client.conftest import World


async def test_a_receipt_says_where_the_message_stands(world: World) -> None:
    first = await world.client.submit("web:1", "one", id="m:1")
    second = await world.client.submit("web:1", Message("two", author="ann"), id="m:2")
    assert first == Receipt(
        session_id="web:1", submission_id="m:1", answer="accepted", position=0, seq=1
    )
    assert (second.position, second.seq) == (1, 2)
    (_, waiting) = await world.stores.producer.inbox("web:1")
    assert decode_op(waiting.body) == MessageOp(text="two", author="ann")


async def test_a_repeat_is_a_duplicate_with_the_first_number_and_changes_nothing(
    world: World,
) -> None:
    first = await world.client.submit("web:1", "one", id="m:1")
    before = await world.stores.dump()
    again = await world.client.submit("web:1", "one", id="m:1")
    assert (again.answer, again.seq) == ("duplicate", first.seq)
    assert await world.stores.dump() == before


async def test_an_id_with_other_content_is_refused_and_changes_nothing(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    before = await world.stores.dump()
    with pytest.raises(IdReused):
        await world.client.submit("web:1", "two", id="m:1")
    assert await world.stores.dump() == before


@pytest.mark.parametrize("character", ["x", '"', "\x01", "é", "🦊"])
async def test_a_message_of_exactly_the_limit_arrives_whole_whatever_it_holds(
    world: World, character: str
) -> None:
    text = character * (world.settings.max_message // len(character.encode()))
    assert len(text.encode()) == world.settings.max_message
    await world.client.submit("web:1", text, id="m:1")
    (entry,) = await world.stores.producer.inbox("web:1")
    assert decode_op(entry.body) == MessageOp(text=text)
    before = await world.stores.dump()
    with pytest.raises(TooLarge):
        await world.client.submit("web:1", text + "x", id="m:2")
    assert await world.stores.dump() == before


async def test_options_reach_the_session_that_the_first_message_creates(world: World) -> None:
    await world.client.submit(
        "web:1", "one", agent="support", queue="gpu", priority=2, context={"chat": "7"}
    )
    await world.client.submit("web:1", "two", agent="other", context={"chat": "8"})
    info = await world.client.session("web:1")
    assert (info.agent, info.queue, info.context) == ("support", "gpu", {"chat": "7"})
    assert (info.status, info.inbox, info.seq) == ("ready", 2, 2)


async def test_run_answers_with_the_outcome(world: World) -> None:
    running = asyncio.ensure_future(world.client.run("web:1", "hello", id="m:1", timeout="30s"))
    await _accepted(world, "web:1", "m:1")
    await world.acting.answer("web:1", "Hello.")
    outcome = await running
    assert (outcome.ending, outcome.text, outcome.turn_id) == (Ending.COMPLETED, "Hello.", "t_1")
    assert (outcome.steps, outcome.usage.total_tokens) == (1, 7)


async def test_run_raises_what_became_of_another_ending(world: World) -> None:
    failing = asyncio.ensure_future(world.client.run("web:1", "one", id="m:1"))
    await _accepted(world, "web:1", "m:1")
    held = await world.acting.take("web:1")
    await held.start()
    await held.fail("401")
    with pytest.raises(TurnFailed, match="401") as failed:
        await failing
    assert failed.value.outcome.ending is Ending.FAILED

    aborted = asyncio.ensure_future(world.client.run("web:1", "two", id="m:2"))
    await _accepted(world, "web:1", "m:2")
    held = await world.acting.take("web:1")
    await held.start()
    await held.abort()
    with pytest.raises(TurnAborted):
        await aborted

    cancelled = asyncio.ensure_future(world.client.run("web:1", "three", id="m:3"))
    await _accepted(world, "web:1", "m:3")
    await world.client.cancel("web:1", "m:3")
    with pytest.raises(CancelledSubmission) as caught:
        await cancelled
    assert caught.value.outcome.turn_id is None


async def test_a_timeout_leaves_the_turn_running_and_the_wait_can_be_repeated(world: World) -> None:
    with pytest.raises(WaitTimeout) as caught:
        await world.client.run("web:1", "hello", id="m:1", timeout="0s")
    assert (caught.value.receipt.submission_id, caught.value.receipt.seq) == ("m:1", 1)
    await world.acting.answer("web:1", "Hello.")
    assert (await world.client.wait("web:1", "m:1")).text == "Hello."


async def test_waiting_for_what_nobody_knows_is_refused(world: World) -> None:
    with pytest.raises(UnknownSession):
        await world.client.wait("web:1", "m:1")
    await world.client.submit("web:1", "one", id="m:1")
    with pytest.raises(UnknownSubmission):
        await world.client.wait("web:1", "m:2")


async def test_many_are_answered_in_order_one_each_and_a_bad_one_stops_no_other(
    world: World,
) -> None:
    items = [
        Submission("web:1", "one", id="m:1"),
        Submission("web:2", " ", id="m:2"),
        Submission("web:1", "two", id="m:3"),
        Submission("bad id", "x", id="m:4"),
        Submission("web:1", "other", id="m:1"),
        Submission("web:2", "x" * (world.settings.max_message + 1), id="m:5"),
        Submission("web:2", "three", id="m:6"),
        Submission("web:1", "one", id="m:1"),
    ]
    answers = [answer async for answer in world.client.submit_many(iter(items), in_flight=3)]
    assert [answer.submission_id for answer in answers] == [item.id for item in items]
    assert [
        answer.code if isinstance(answer, Refused) else answer.answer for answer in answers
    ] == [
        "accepted",
        "invalid",
        "accepted",
        "invalid",
        "id_reused",
        "too_large",
        "accepted",
        "duplicate",
    ]


async def test_many_from_an_asynchronous_source_keep_their_order_within_a_session(
    world: World,
) -> None:
    async def source() -> AsyncIterator[Submission]:
        for number in range(40):
            yield Submission(f"web:{number % 2}", f"text {number}", id=f"m:{number}")

    answers = [answer async for answer in world.client.submit_many(source(), in_flight=7)]
    assert [answer.submission_id for answer in answers] == [f"m:{n}" for n in range(40)]
    waiting = await world.stores.producer.inbox("web:1")
    assert [entry.submission_id for entry in waiting] == [f"m:{n}" for n in range(1, 40, 2)]


async def test_each_wrong_item_is_refused_in_its_place_and_stops_no_other(world: World) -> None:
    wrong: list[Any] = [
        1,
        ("web:1", "x"),
        None,
        Submission(5, "x", id="m:1"),  # type: ignore[arg-type]
        Submission("web:1", "x", id="\ud83d"),
        Submission("web:1", 7, id="m:2"),  # type: ignore[arg-type]
    ]
    items = [*wrong, Submission("web:1", "hello", id="m:3")]

    async def source() -> AsyncIterator[Submission]:
        for item in items:
            yield item

    for many in (items, source()):
        *refused, accepted = [answer async for answer in world.client.submit_many(many)]
        assert isinstance(accepted, Receipt)
        known = [("", ""), ("", ""), ("", ""), ("", "m:1"), ("web:1", ""), ("web:1", "m:2")]
        assert [(answer.session_id, answer.submission_id) for answer in refused] == known
        for answer in refused:
            assert isinstance(answer, Refused)
            assert (answer.code, "nothing was sent" in answer.text) == ("invalid", True)
    assert [entry.submission_id for entry in await world.stores.producer.inbox("web:1")] == ["m:3"]


async def test_a_full_inbox_refuses_the_rest_with_a_time_to_come_back(world: World) -> None:
    limit = world.settings.max_inbox
    items = [Submission("web:1", "x", id=f"m:{number}") for number in range(limit + 2)]
    answers = [answer async for answer in world.client.submit_many(items)]
    assert all(isinstance(answer, Receipt) for answer in answers[:limit])
    for answer in answers[limit:]:
        assert isinstance(answer, Refused)
        assert (answer.code, answer.retry_after_ms) == ("busy", 1000)
    assert len(await world.stores.producer.inbox("web:1")) == limit


async def test_wait_many_yields_each_outcome_once_as_they_end(world: World) -> None:
    names = [f"web:{number}" for number in range(70)]
    items = [Submission(name, "hello", id=f"{name}:m") for name in names]
    answers = [answer async for answer in world.client.submit_many(items)]
    receipts = [answer for answer in answers if isinstance(answer, Receipt)]
    for name in reversed(names[1:]):
        await world.acting.answer(name, f"to {name}")
    outcomes = world.client.wait_many(receipts, timeout="60s")
    seen = [await anext(outcomes) for _ in names[1:]]
    await world.acting.answer("web:0", "to web:0")
    seen += [outcome async for outcome in outcomes]
    assert seen[-1].session_id == "web:0"
    assert sorted(outcome.session_id for outcome in seen) == sorted(names)
    assert all(outcome.text == f"to {outcome.session_id}" for outcome in seen)


async def test_wait_many_tells_of_the_unknown_only_after_everything_else(world: World) -> None:
    known = await world.client.submit("web:1", "one", id="m:1")
    await world.acting.answer("web:1", "Hello.")
    unknown = known.model_copy(update={"submission_id": "m:2"})
    outcomes = world.client.wait_many([unknown, known])
    assert (await anext(outcomes)).submission_id == "m:1"
    with pytest.raises(UnknownSubmission):
        await anext(outcomes)


async def test_wait_many_of_nothing_ends_at_once(world: World) -> None:
    assert [outcome async for outcome in world.client.wait_many([])] == []


async def test_wait_many_raises_its_timeout_and_leaves_the_work(world: World) -> None:
    receipt = await world.client.submit("web:1", "one", id="m:1")
    with pytest.raises(WaitTimeout):
        async for _ in world.client.wait_many([receipt], timeout="0s"):
            raise AssertionError("nothing has ended")
    assert (await world.client.session("web:1")).inbox == 1


async def test_a_closed_session_ends_what_waits_and_takes_nothing_more(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    await world.client.cancel("web:1", "m:1")
    closing = await world.client.close_session("web:1", reason="done")
    await world.client.submit("web:1", "two", id="m:2")
    held = await world.acting.take("web:1")
    await held.start()
    await held.close()
    assert (await world.client.wait("web:1", closing.submission_id)).ending is Ending.COMPLETED
    assert (await world.client.wait("web:1", "m:2")).ending is Ending.CANCELLED
    before = await world.stores.dump()
    with pytest.raises(Closed):
        await world.client.submit("web:1", "three")
    assert await world.stores.dump() == before
    assert (await world.client.session("web:1")).status == "closed"


async def test_a_client_fails_at_once_when_redis_is_away() -> None:
    client = Client("redis://127.0.0.1:1/0")
    with pytest.raises(StoreUnavailable):
        await client.submit("web:1", "one")
    with pytest.raises(StoreUnavailable):
        async with client:
            raise AssertionError("it was opened")
    await client.aclose()


async def _accepted(world: World, session_id: str, submission_id: str) -> None:
    """Wait for the submission's own event, which the submit script writes."""
    journal = world.stores.producer.wait_journal
    after, seen = 0, ""
    while seen != submission_id:
        (event, *_) = await journal(session_id, after=after, block_ms=5_000)
        after, seen = event.seq, event.submission_id or ""
