"""A server at its maxmemory: what adds work is refused whole, what moves, ends or frees it runs.

Not where nothing limits the memory, see `left_out.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from changeover_shared._errors import Busy, StoreUnavailable
from changeover_shared._server.foreign_errors import MemoryFull
from changeover_shared._store import requests
from changeover_shared._store.fleet import Fleet
from changeover_shared._store.lease_store import Duty
from changeover_shared._store.records import (
    Asked,
    Bucket,
    Caps,
    Create,
    Crowd,
    Permit,
    Submit,
    Submitted,
)
from changeover_shared._store.requests import Request
from changeover_shared._store.scripts import EXEMPT, NAMES
from tests.support.driving import LATER_MS, SESSION, Driver
from tests.support.fleet import Stores, small_settings
from tests.support.payload_keys import KeyFiles, joined

Call = Callable[[], Awaitable[list[Any]]]
Prepared = Callable[[Driver], Awaitable[Call]]


@pytest.fixture
async def drive(stores: Stores) -> AsyncIterator[Driver]:
    """The scripts one by one, on servers that know what memory is."""
    driver = Driver(stores)
    yield driver
    await has_room(driver)


async def is_full(drive: Driver) -> None:
    await drive.executor.on_every_primary("CONFIG", "SET", "maxmemory", 1)


async def has_room(drive: Driver) -> None:
    await drive.executor.on_every_primary("CONFIG", "SET", "maxmemory", 0)


def message(name: str) -> Submit:
    return Submit(SESSION, name, f"d:{name}", "turn", "body", Create("assistant@1", "assistant"))


# What each script meets, and what it is then asked


async def _init(drive: Driver) -> Call:
    unused = next(at for at in drive.fleet.keys.all if at != drive.partition)
    return lambda: drive.bare(Request("init", unused, {}, {}))


async def _raise_epoch(drive: Driver) -> Call:
    await drive.submit("m1")
    stored = await drive.redis("HGET", drive.shared("meta"), "replid")
    request = Request("raise_epoch", drive.partition, {}, {"expected": stored})
    return lambda: drive.bare(request, replid="promoted")


async def _submit(drive: Driver) -> Call:
    await drive.submit("m1")
    return lambda: drive.submit("m2")


async def _warned_submit(drive: Driver) -> Call:
    await drive.submit("m1")
    return lambda: drive.answer("nobody asked")


async def _control(drive: Driver) -> Call:
    await drive.submit("m1")
    return lambda: drive.cancel("m1")


async def _peek(drive: Driver) -> Call:
    await drive.submit("m1")
    return drive.peek


async def _reap(drive: Driver) -> Call:
    await drive.run("m1")
    await drive.expire()
    return drive.reap


async def _claim(drive: Driver) -> Call:
    await drive.submit("m1")
    ghost = drive.neighbour()
    await drive.redis("ZADD", drive.shared("ready"), 1, ghost.session)
    return lambda: drive.claim(ghost.session, SESSION)


async def _renew(drive: Driver) -> Call:
    lease = await drive.run("m1")
    return lambda: drive.renew(lease, ttl_ms=LATER_MS)


async def _append(drive: Driver) -> Call:
    lease = await drive.run("m1")
    return lambda: drive.append(lease)


async def _commit(drive: Driver) -> Call:
    lease = await drive.run("m1")
    commit = await drive.commit_of("end", end="completed", next="auto", items=("the answer",))
    return lambda: drive.committing(lease, commit)


async def _settle(drive: Driver) -> Call:
    lease = await drive.run("m1")
    commit = await drive.commit_of("end", end="aborted", next="auto", turn_record="{}")
    return lambda: drive.committing(lease, commit)


async def _give_up(drive: Driver) -> Call:
    lease = await drive.run("m1")
    return lambda: drive.give_up(lease)


async def _evict(drive: Driver) -> Call:
    lease = await drive.run("m1")
    return lambda: drive.evict((SESSION, lease.token))


async def _delete(drive: Driver) -> Call:
    await drive.run("m1")
    return drive.delete


async def _reroute(drive: Driver) -> Call:
    await drive.submit("m1")
    return drive.reroute


async def _defer(drive: Driver) -> Call:
    await drive.submit("m1")
    return drive.defer


async def _trim(drive: Driver) -> Call:
    for k in range(3):
        await drive.finish(await drive.run(f"m{k}", nonce=f"n{k}"))
    return drive.trim


async def _purge(drive: Driver) -> Call:
    await drive.submit("m1")
    await drive.delete()
    return lambda: drive.purge(window_ms=-1)


async def _pressure(drive: Driver) -> Call:
    await drive.submit("m1")
    return lambda: drive.pressure(9, 10)


async def _full(drive: Driver) -> Call:
    await drive.submit("m1")
    return lambda: drive.full(Crowd("acme", 9, 9))


async def _recount(drive: Driver) -> Call:
    await drive.submit("m1")
    return lambda: drive.recount(1)


async def _pause(drive: Driver) -> Call:
    await drive.submit("m1")
    return drive.pause


async def _quarantine(drive: Driver) -> Call:
    await drive.submit("m1")
    return drive.stop


async def _redrive(drive: Driver) -> Call:
    await drive.submit("m1")
    await drive.stop()
    return drive.redrive


async def _dead_letter(drive: Driver) -> Call:
    await drive.submit("m1")
    await drive.stop()
    return drive.dead_letter


async def _schedule(drive: Driver) -> Call:
    await drive.schedule()
    return lambda: drive.schedule("s2")


async def _reschedule(drive: Driver) -> Call:
    await drive.schedule()
    return lambda: drive.schedule(seen="v1|1000", due_ms=2000)


async def _permit(drive: Driver) -> Call:
    await drive.submit("m1")
    request = requests.permit(
        drive.fleet.keys, [Permit(SESSION, "n1", "assistant", "acme")], Caps(1, 1), span_ms=1000
    )
    return lambda: drive.call(request)


async def _limit(drive: Driver) -> Call:
    await drive.submit("m1")
    asked = Asked("s|t_1|0|", "r1", 10, (Bucket("main", "", 60, 1000, 1),))
    request = requests.ask_limit(drive.fleet.keys, asked, span_ms=1000, longest_ms=1000)
    return lambda: drive.call(request)


RUNS: dict[str, tuple[Prepared, list[Any]]] = {
    "init": (_init, ["OK"]),
    "raise_epoch": (_raise_epoch, ["OK"]),
    "control": (_control, ["CANCELLED"]),
    "reap": (_reap, [["PLACED", "ready"]]),
    "renew": (_renew, []),
    "settle": (_settle, ["OK", "gone"]),
    "give_up": (_give_up, ["OK", "ready"]),
    "evict": (_evict, ["OK", "1"]),
    "delete": (_delete, ["OK"]),
    "reroute": (_reroute, ["OK", "ready"]),
    "defer": (_defer, ["OK"]),
    "trim": (_trim, ["OK"]),
    "purge": (_purge, ["PURGED"]),
    "pressure": (_pressure, ["OK"]),
    "full": (_full, ["OK"]),
    "recount": (_recount, ["OK"]),
    "pause": (_pause, ["OK"]),
    "quarantine": (_quarantine, ["OK"]),
    "redrive": (_redrive, ["OK"]),
    "dead_letter": (_dead_letter, ["OK"]),
    "reschedule": (_reschedule, ["OK", "2000"]),
    "permit": (_permit, ["OK"]),
    "limit": (_limit, ["GRANTED"]),
}
"""What must go on with a full memory, and how its answer begins."""

REFUSED: dict[str, Prepared] = {
    "submit": _submit,
    "claim": _claim,
    "append": _append,
    "commit": _commit,
    "schedule": _schedule,
}
"""What has to wait for memory: it adds work, or what work came to."""


def test_every_script_has_a_class() -> None:
    """Hole 40."""
    assert {*RUNS, *REFUSED, "peek"} == {*NAMES, *EXEMPT}


@pytest.mark.parametrize("name", RUNS)
async def test_what_moves_ends_or_frees_work_runs_with_a_full_memory(
    drive: Driver, name: str
) -> None:
    """Hole 40: also when the server has to be taught the script first."""
    prepare, expected = RUNS[name]
    call = await prepare(drive)
    await drive.redis("SCRIPT", "FLUSH")
    before = await drive.stores.dump()
    await is_full(drive)
    reply = await call()
    assert reply[: len(expected)] == expected
    assert await drive.stores.dump() != before


@pytest.mark.parametrize("name", REFUSED)
async def test_what_adds_work_is_refused_whole_and_runs_once_there_is_memory(
    drive: Driver, name: str
) -> None:
    """Hole 40: the first write is the one that is refused, whatever stands beside it."""
    call = await REFUSED[name](drive)
    await drive.redis("SCRIPT", "FLUSH")
    await is_full(drive)
    async with drive.unchanged():
        with pytest.raises(MemoryFull, match="OOM"):
            await call()
    await has_room(drive)
    before = await drive.stores.dump()
    await call()
    assert await drive.stores.dump() != before


async def test_a_look_needs_no_memory(drive: Driver) -> None:
    call = await _peek(drive)
    await is_full(drive)
    async with drive.unchanged():
        assert (await call())[3] == [["1", SESSION]]


async def test_a_refused_answer_is_refused_for_memory_alone(drive: Driver) -> None:
    """The warning that tells of it would be a write."""
    call = await _warned_submit(drive)
    await is_full(drive)
    async with drive.unchanged():
        with pytest.raises(MemoryFull):
            await call()
    await has_room(drive)
    assert await call() == ["STALE"]


async def test_repeats_are_answered_with_a_full_memory(drive: Driver) -> None:
    lease = await drive.run("m1")
    commit = await drive.commit_of("step", items=("one",))
    first = await drive.committing(lease, commit)
    await is_full(drive)
    async with drive.unchanged():
        assert (await drive.submit("m1"))[0] == "DUPLICATE"
        again = await drive.committing(lease, commit)
    assert (first[0], again[0]) == ("OK", "REPLAY")
    assert again[1:] == first[1:]


# What people are told


async def test_a_producer_is_told_busy_and_that_nothing_was_accepted(drive: Driver) -> None:
    """The refusal of the server itself, where nobody measured in time."""
    producer = drive.stores.producer
    await producer.submit(message("m1"))
    await is_full(drive)
    async with drive.unchanged():
        with pytest.raises(Busy, match=r"short of memory, so .* nothing was accepted") as refusal:
            await producer.submit(message("m2"))
    assert (refusal.value.scope, refusal.value.limit) == ("memory", 0)
    assert refusal.value.retry_after.total_seconds() == 5
    assert isinstance(await producer.submit(message("m1")), Submitted)
    await has_room(drive)
    assert isinstance(await producer.submit(message("m2")), Submitted)


async def test_a_refusal_for_memory_does_not_count_while_an_earlier_copy_may_run(
    drive: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F4, hole 3: the first attempt lost its answer, so "no" may still turn into "yes"."""
    await drive.submit("m0")
    producer = drive.stores.producer
    executor = drive.stores.executor
    run_all = executor.run_all
    attempts: list[int] = []

    async def full_after_a_loss(calls: Any) -> Any:
        attempts.append(len(attempts))
        if not attempts[1:]:
            return [StoreUnavailable(reason="cut") for _ in calls]
        if not attempts[2:]:
            await is_full(drive)
            refused = await run_all(calls)
            await has_room(drive)
            assert isinstance(refused[0], MemoryFull)
            return refused
        return await run_all(calls)

    monkeypatch.setattr(executor, "run_all", full_after_a_loss)
    answer = await producer.submit(message("m1"))
    assert isinstance(answer, Submitted)
    assert len(attempts) == 3


async def test_a_process_joins_its_fleet_with_a_full_memory_and_a_leader_leads_on(
    drive: Driver,
) -> None:
    """Else nobody could purge, and nobody could say that there is memory again."""
    assert await drive.stores.worker.take_duty("w1:aa", ttl_ms=LATER_MS) is Duty.LEADER
    await is_full(drive)
    joined = await Fleet.join(drive.stores.executor, small_settings())
    assert joined.keys.partitions == 4
    assert await drive.stores.worker.take_duty("w1:aa", ttl_ms=LATER_MS) is Duty.LEADER
    assert await drive.stores.worker.take_duty("w2:bb", ttl_ms=LATER_MS) is not Duty.LEADER


async def test_a_purge_frees_memory_where_there_is_none(drive: Driver) -> None:
    """Also in partitions that nobody has used before."""
    await drive.finish(await drive.run("m1"))
    upkeep = drive.stores.producer.upkeep
    await is_full(drive)
    assert await upkeep.delete(SESSION)
    await has_room(drive)
    await drive.set_head(deleted_ms=1)
    await is_full(drive)
    for at in drive.fleet.keys.all:
        await upkeep.purge(at.partition, [SESSION] if at == drive.partition else ["nobody"])
    assert await drive.stores.keys("*s:*") == []


async def test_a_key_is_rotated_once_there_is_memory_again(drive: Driver, tmp_path: Path) -> None:
    """A process with the new key joins all the same, and reads what the old one has encrypted."""
    keys, stores = KeyFiles(tmp_path), drive.stores
    old = await joined(stores, keys.settings("old"))
    await old.producer.submit(message("m1"))
    before = await drive.executor.command("GET", old.producer.keys.secret)
    await is_full(drive)
    both = await joined(stores, keys.settings("new", "old"))
    assert len(await both.producer.inbox(SESSION)) == 1
    assert await drive.executor.command("GET", old.producer.keys.secret) == before
    await has_room(drive)
    await joined(stores, keys.settings("new", "old"))
    assert await drive.executor.command("GET", old.producer.keys.secret) != before
