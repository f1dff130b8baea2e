"""Counters that are used up or unreadable: refused before the first write, by every script that
would count on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from changeover_shared._events import Event
from changeover_shared._store import decode, requests
from changeover_shared._store.records import Create, Lease, Submit
from changeover_shared._store.requests import Request
from tests.support.driving import LATER_MS, SESSION, Driver

LAST = 2**53 - 1
COUNTERS = ("rev", "seq", "n", "turns", "transcript_n", "fence")
UNFIT = (str(LAST), "-1", "many", "1.5")

Prepare = Callable[[Driver, Lease], Awaitable[Request]]


async def a_message(drive: Driver, lease: Lease) -> Request:
    asked = Submit(SESSION, "m3", "d", "turn", "body", Create(drive.route, "assistant"))
    return await submitted(drive, asked)


async def an_interrupt(drive: Driver, lease: Lease) -> Request:
    asked = Submit(SESSION, "i1", "d", "ctl", "{}", Create(drive.route, "assistant"))
    return await submitted(drive, asked)


async def submitted(drive: Driver, asked: Submit) -> Request:
    return requests.submit(
        drive.fleet.keys,
        drive.stores.producer.settings,
        asked,
        route=drive.route,
        not_after_ms=await drive.now() + LATER_MS,
    )


async def a_cancel(drive: Driver, lease: Lease) -> Request:
    return requests.control(
        drive.fleet.keys, SESSION, request_id="c1", target="m2", route=drive.route,
        not_after_ms=await drive.now() + LATER_MS,
    )  # fmt: skip


async def an_event(drive: Driver, lease: Lease) -> Request:
    return requests.append(
        drive.fleet.keys, lease, batch_no=1, events=[Event(type="delta")], cap=1000
    )


async def a_commit(drive: Driver, lease: Lease) -> Request:
    return requests.commit(drive.fleet.keys, lease, await drive.commit_of("step"))


async def a_deletion(drive: Driver, lease: Lease) -> Request:
    head = decode.head(await drive.executor.command("HGETALL", drive.key("head")))
    assert head is not None
    return requests.delete(
        drive.fleet.keys, head, SESSION, reason="", window_ms=1000,
        not_after_ms=await drive.now() + LATER_MS,
    )  # fmt: skip


@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize(
    "prepare", [a_message, an_interrupt, a_cancel, an_event, a_commit, a_deletion]
)
async def test_nothing_is_written_on_top_of_a_counter_that_is_unfit(
    drive: Driver, prepare: Prepare, counter: str
) -> None:
    """Case S39: used up, negative, no number at all."""
    lease = await drive.run("m1")
    await drive.submit("m2")
    request = await prepare(drive, lease)
    for value in UNFIT:
        await drive.set_head(**{counter: value})
        async with drive.unchanged():
            with pytest.raises(Exception, match=f"LIMIT {counter} of {SESSION}"):
                await drive.call(request)


@pytest.mark.parametrize("counter", COUNTERS)
async def test_a_claim_grants_no_session_whose_counter_is_unfit_and_grants_the_others(
    drive: Driver, counter: str
) -> None:
    """Case S39: no grant. Difference: a claim names several, so it refuses this one alone."""
    await drive.submit("m1")
    other = drive.neighbour()
    await other.submit("m1")
    for value in UNFIT:
        await drive.set_head(**{counter: value})
        async with drive.unchanged():
            assert await drive.claim(nonce="n1") == [["NONE"]]
    words = await drive.claim(drive.session, other.session, nonce="n2")
    assert [word for word, *_ in words] == ["NONE", "GRANTED"]


async def test_a_repeat_of_what_was_accepted_is_still_answered(drive: Driver) -> None:
    await drive.submit("m2")
    await drive.set_head(seq=LAST)
    async with drive.unchanged():
        assert (await drive.submit("m2"))[0] == "DUPLICATE"
