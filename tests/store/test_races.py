"""Two clients at once, on connections of their own: one order or the other, and nothing between.

Each race is run in rounds, each with sessions of its own; what must be true is true of either
order. Where an order can be chosen, both are.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Awaitable
from typing import Any

import pytest

from changeover_shared._store import requests
from changeover_shared._store.records import Lease, NewWait
from changeover_shared._store.requests import Request
from changeover_shared._store.scripts import Script, script
from tests.support.driving import Driver, fields

ROUNDS = 12
WRITES = "-- From here on everything is written."
SPIN = "for _ = 1, 300000 do end"
"""Some milliseconds inside the server."""


async def together(*calls: Awaitable[Any]) -> list[Any]:
    """Start all calls in one moment; their answers in order."""
    barrier = asyncio.Barrier(len(calls))

    async def run(call: Awaitable[Any]) -> Any:
        async with barrier:
            return await call

    return list(await asyncio.gather(*(run(call) for call in calls)))


def slow(ours: Script) -> Script:
    """The same script, which lingers between its last guard and its first write."""
    assert ours.body.count(WRITES) == 1
    text, plain = (one.replace(WRITES, f"{SPIN} {WRITES}") for one in (ours.text, ours.plain))
    sha, plain_sha = (hashlib.sha1(one.encode()).hexdigest() for one in (text, plain))
    return dataclasses.replace(ours, text=text, plain=plain, sha=sha, plain_sha=plain_sha)


async def slowly(drive: Driver, request: Request) -> list[Any]:
    """Run a request with its slow script."""
    return await drive.released(slow(script(request.name)), request)


async def take_over(drive: Driver, lease: Lease) -> list[Any]:
    """End a lease by its name and claim the session: the answer to the claim."""
    await drive.evict((lease.session_id, lease.token))
    await drive.reap()
    (answer,) = await drive.claim(incarnation="w2:bb", nonce=f"after {lease.fence}")
    return list(answer)


async def starting(drive: Driver, lease: Lease) -> Request:
    commit = await drive.commit_of("start", take=(1,), items=("one",))
    return requests.commit(drive.fleet.keys, lease, commit)


@pytest.mark.parametrize("first", ["commit", "takeover"])
async def test_a_takeover_comes_before_or_after_what_the_old_holder_writes(
    drive: Driver, second: Driver, first: str
) -> None:
    """Case 003-2: in the one order the successor is granted the open turn with its input, in the
    other the input waits; the old holder's end of the turn is refused in both. Difference: the
    pause between check and write cannot be made, as both are one script; so each order is chosen,
    and the next test lets the server choose."""
    await drive.submit("m1")
    lease = await drive.hold()
    request = await starting(drive, lease)
    if first == "commit":
        assert (await drive.call(request))[0] == "OK"
        answer = await take_over(second, lease)
        assert fields(answer[4])["turn"] == "t_1"
        assert fields(answer[5])["1"].split("|")[2] == "t_1"
    else:
        answer = await take_over(second, lease)
        async with drive.unchanged():
            assert await drive.call(request) == ["LOST", "2"]
        assert "turn" not in fields(answer[4])
        assert fields(answer[5])["1"].split("|")[2] == ""
        await second.commit(await second.holder(), "start", take=(1,))
    assert answer[:2] == ["GRANTED", "2"]
    async with drive.unchanged():
        assert await drive.commit(lease, "end", end="completed") == ["LOST", "2"]
    await second.finish(await second.holder())
    assert (await drive.receipt("m1") or {})["ending"] == "completed"


async def test_a_takeover_never_comes_between_check_and_write(
    drive: Driver, second: Driver
) -> None:
    """Case 003-2: whichever comes first on the server, the successor is granted what there is then,
    and nothing of the old holder is written afterwards."""
    for round in range(ROUNDS):
        old, new = drive.of(f"round:{round}"), second.of(f"round:{round}")
        await old.submit("m1")
        lease = await old.hold()
        request = await starting(old, lease)
        written, answer = await together(slowly(old, request), take_over(new, lease))
        assert answer[:2] == ["GRANTED", "2"]
        granted, now = fields(answer[4]), await new.head()
        assert (granted.get("turn"), granted["rev"]) == (now.get("turn"), now["rev"])
        if written[0] == "OK":
            assert (now["turn"], await new.bodies("transcript")) == ("t_1", {1: "one"})
        else:
            assert written[0] in ("EXPIRED", "GONE", "LOST")
            assert ("turn" in now, await new.bodies("transcript")) == (False, {})
        assert await old.commit(lease, "end", end="completed") == ["LOST", "2"]


async def test_one_of_two_commits_on_one_revision_is_written(drive: Driver, second: Driver) -> None:
    """Case S2: the other is told the revision that there is, and nothing of it is written."""
    for round in range(ROUNDS):
        one, two = drive.of(f"round:{round}"), second.of(f"round:{round}")
        lease = await one.run("m1")
        asked = [
            requests.commit(
                one.fleet.keys,
                lease,
                await one.commit_of("step", commit_id=name, items=(name,), checkpoint=name),
            )
            for name in ("first", "second")
        ]
        answers = await together(slowly(one, asked[0]), slowly(two, asked[1]))
        assert sorted(answer[0] for answer in answers) == ["CONFLICT", "OK"]
        won = "first" if answers[0][0] == "OK" else "second"
        assert next(a for a in answers if a[0] == "CONFLICT") == ["CONFLICT", "2", "t_1"]
        assert (await one.head())["rev"] == "2"
        assert await one.bodies("transcript") == {1: won}
        assert (await one.bodies("checkpoint"))[2] == won


async def test_one_of_two_starts_takes_the_input(drive: Driver, second: Driver) -> None:
    """Case S9: under one lease; what the winner has taken waits no longer."""
    for round in range(ROUNDS):
        one, two = drive.of(f"round:{round}"), second.of(f"round:{round}")
        await one.submit("m1")
        lease = await one.hold()
        first = requests.commit(one.fleet.keys, lease, await one.commit_of("start", take=(1,)))
        other = requests.commit(two.fleet.keys, lease, await two.commit_of("start", take=(1,)))
        answers = await together(one.call(first), two.call(other))
        assert sorted(answer[0] for answer in answers) == ["CONFLICT", "OK"]
        work = await one.stores.worker.read_work(one.session)
        assert work.open_inputs(await one.now()) == ()


async def test_one_of_two_workers_is_granted_a_session(drive: Driver, second: Driver) -> None:
    """Cases S9, S28: the other is told that it is busy, and the session is in no ready set."""
    for round in range(ROUNDS):
        one, two = drive.of(f"round:{round}"), second.of(f"round:{round}")
        await one.submit("m1")
        answers = await together(
            one.claim(incarnation="w1:aa", nonce="n1"), two.claim(incarnation="w2:bb", nonce="n2")
        )
        words = sorted(answer[0] for (answer,) in answers)
        assert words == ["BUSY", "GRANTED"]
        assert (await one.head())["fence"] == "1"
        assert (await one.head())["attempts"] == "1"
        assert await one.indexes() == {"leases"}


async def test_one_of_two_takeovers_is_granted(drive: Driver, second: Driver) -> None:
    """Case S7: both have seen the same lease end; one fence higher, once."""
    for round in range(ROUNDS):
        one, two = drive.of(f"round:{round}"), second.of(f"round:{round}")
        lease = await one.run("m1", incarnation="w0:00", nonce="n0")

        async def take(drive: Driver, name: str, dead: Lease) -> str:
            await drive.evict((dead.session_id, dead.token))
            await drive.reap()
            (answer,) = await drive.claim(incarnation=f"{name}:aa", nonce=name)
            return str(answer[0])

        words = await together(take(one, "w1", lease), take(two, "w2", lease))
        assert sorted(words) == ["BUSY", "GRANTED"]
        assert (await one.head())["fence"] == "2"


@pytest.mark.parametrize("first", ["renewal", "grant", "either"])
async def test_a_grant_stands_against_a_renewal_of_the_lease_before(
    drive: Driver, second: Driver, first: str
) -> None:
    """Case S33: a renewal that came first extends a lease that has been ended by name for nobody,
    and one that comes later is refused."""
    for round in range(ROUNDS):
        old, new = drive.of(f"round:{round}"), second.of(f"round:{round}")
        lease = await old.run("m1")
        if first == "renewal":
            assert (await old.renew(lease, ttl_ms=600_000))[0][0] == "OK"
            answer = await take_over(new, lease)
        elif first == "grant":
            answer = await take_over(new, lease)
        else:
            renewed, answer = await together(
                old.renew(lease, ttl_ms=600_000), take_over(new, lease)
            )
            assert renewed[0][0] in ("OK", "EXPIRED", "GONE", "LOST")
        assert answer[:2] == ["GRANTED", "2"]
        granted = await new.score("leases")
        async with old.unchanged():
            assert await old.renew(lease, ttl_ms=600_000) == [["LOST", "0", "0", "2"]]
        assert await new.score("leases") == granted


async def test_an_id_that_comes_twice_at_once_is_accepted_once(
    drive: Driver, second: Driver
) -> None:
    """Case S8: also when it creates its session."""
    for round in range(ROUNDS):
        one, two = drive.of(f"round:{round}"), second.of(f"round:{round}")
        answers = await together(one.submit("m1"), two.submit("m1"))
        assert sorted(answer[0] for answer in answers) == ["ACCEPTED", "DUPLICATE"]
        assert {answer[1] for answer in answers} == {"1"}
        assert await one.bodies("inbox") == {1: "body of m1"}


async def test_a_cancel_and_a_take_have_one_outcome(drive: Driver, second: Driver) -> None:
    """Case S12: cancelled and not taken, or taken and told which turn runs it.

    Holes 13, 14: nothing between.
    """
    for round in range(ROUNDS):
        worker, producer = drive.of(f"round:{round}"), second.of(f"round:{round}")
        await worker.submit("m1")
        lease = await worker.hold()
        request = await starting(worker, lease)
        started, cancelled = await together(slowly(worker, request), producer.cancel("m1"))
        assert (started[0], cancelled) in (
            ("OK", ["RUNNING", "t_1", "held"]),
            ("INPUT", ["CANCELLED"]),
        )
        ending = (await worker.receipt("m1") or {})["ending"]
        assert ending == ("" if started[0] == "OK" else "cancelled")


async def test_an_interrupt_and_a_completion_have_one_outcome(
    drive: Driver, second: Driver
) -> None:
    """Hole 11: the turn completed and the interrupt found none, or it was interrupted and could not
    complete."""
    for round in range(ROUNDS):
        worker, producer = drive.of(f"round:{round}"), second.of(f"round:{round}")
        lease = await worker.run("m1")
        end = await worker.commit_of("end", end="completed", next="release", progress=True)
        request = requests.commit(worker.fleet.keys, lease, end)
        ended, interrupted = await together(slowly(worker, request), producer.interrupt("i1"))
        assert (ended[0], interrupted[0]) in (("OK", "NO_TURN"), ("CONTROL", "ACCEPTED"))
        if ended[0] == "CONTROL":
            await worker.finish(lease, end="aborted")
        ending = (await worker.receipt("m1") or {})["ending"]
        assert ending == ("completed" if ended[0] == "OK" else "aborted")


async def test_the_first_of_two_answers_wins(drive: Driver, second: Driver) -> None:
    """Hole 8: the other is told so, whoever was first."""
    for round in range(ROUNDS):
        one, two = drive.of(f"round:{round}"), second.of(f"round:{round}")
        await one.park("w1")
        answers = await together(one.answer("w1", "a1"), two.answer("w1", "a2"))
        assert sorted(answer[0] for answer in answers) == ["ACCEPTED", "ANSWERED"]
        won = "a1" if answers[0][0] == "ACCEPTED" else "a2"
        assert (await one.work())["2"][4] == won


@pytest.mark.parametrize("what", ["answer", "message", "interrupt"])
async def test_what_comes_while_a_turn_parks_is_not_lost(
    drive: Driver, second: Driver, what: str
) -> None:
    """Hole 15: the holder keeps the session, or the session is ready for the next one."""
    for round in range(ROUNDS):
        worker, producer = drive.of(f"round:{round}"), second.of(f"round:{round}")
        lease = await worker.run("m1")
        await worker.commit(lease, waits=(NewWait("w1", "approval"),))
        parking = requests.commit(
            worker.fleet.keys, lease, await worker.commit_of("step", next="park")
        )
        calls = {
            "answer": lambda drive: drive.answer("w1", "a1"),
            "message": lambda drive: drive.submit("m2"),
            "interrupt": lambda drive: drive.interrupt("i1"),
        }
        parked, accepted = await together(slowly(worker, parking), calls[what](producer))
        assert (parked[0], accepted[0]) == ("OK", "ACCEPTED")
        found = (parked[1], await worker.status(), await worker.indexes())
        assert found in (
            [("gone", "parked", set())]
            if what == "message"
            else [("held", "held", {"leases"}), ("gone", "ready", {"ready"})]
        )
