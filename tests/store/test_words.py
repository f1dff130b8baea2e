"""Every word that a script can answer, by a scene that brings it about, and what it leaves behind.

What a script answers for every call, like `NO_FLEET`, is in test_fleet.py; what refuses a commit
is in test_preconditions.py. Together they are all the words of all the headers.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest

from changeover_shared._events import Event
from changeover_shared._store import requests
from changeover_shared._store.records import EVERYBODY, Crowd, Lease, NewWait, Permit
from changeover_shared._store.requests import Request
from changeover_shared._store.scripts import NAMES, script
from changeover_shared._words import GiveUp
from tests.store.test_fleet import FIRST_GUARDS, GRANTING, GUARDED
from tests.store.test_preconditions import ROWS
from tests.support.driving import LATER_MS, ONE, SESSION, Driver

Ask = Callable[[Driver, Any], Awaitable[list[Any]]]
Arrange = Callable[[Driver], Awaitable[Any]]

PER_SESSION: Final = ("reap", "claim", "renew", "purge", "permit")
"""Scripts that answer a word for each session of the call, in their second value."""
LATE_MS: Final = 1
"""A not-after that has passed."""
OLD_ID: Final = "0000018b-cfe5-7abc-8def-0123456789ab"
FUTURE_ID: Final = "ffffffff-ffff-7abc-8def-0123456789ab"


@dataclass(frozen=True)
class Scene:
    """What is there, what is asked, and the words of the answer."""

    script: str
    words: str
    """The word of the answer and, behind it, those of its sessions."""
    ask: Ask
    before: Arrange
    leaves: str = "nothing"
    """What the call leaves behind: `nothing`, `a warning`, or `its work`."""


# What is there before


async def nobody(drive: Driver) -> None:
    """A partition in which only a neighbour has been heard of."""
    await drive.neighbour().submit("m1")


async def nothing(drive: Driver) -> None:
    """Not even a partition."""


async def waiting(drive: Driver) -> None:
    await drive.submit("m1")


async def full(drive: Driver) -> None:
    assert await drive.neighbour().permit() == "GRANTED"


async def crowded(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.full(Crowd(EVERYBODY, 1, 1))


async def used_up(drive: Driver) -> None:
    assert await drive.limit("r0") == 0


async def paused(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.pause()


async def scheduled(drive: Driver) -> None:
    await drive.schedule()


async def running(drive: Driver) -> Lease:
    return await drive.run("m1")


async def idle(drive: Driver) -> Lease:
    lease = await drive.run("m1")
    await drive.finish(lease)
    return lease


async def interrupted(drive: Driver) -> Lease:
    lease = await drive.run("m1")
    await drive.interrupt("i0")
    return lease


async def asking(drive: Driver) -> Lease:
    """A turn that waits for an answer, under its lease."""
    lease = await drive.run("m1")
    await drive.commit(lease, waits=(NewWait("w1", "approval"),))
    return lease


async def answered(drive: Driver) -> Lease:
    lease = await asking(drive)
    await drive.answer("w1", "a0")
    return lease


async def expired(drive: Driver) -> Lease:
    lease = await drive.run("m1")
    await drive.expire()
    return lease


async def given_up(drive: Driver) -> Lease:
    lease = await drive.run("m1")
    await drive.give_up(lease)
    return lease


async def reaped(drive: Driver) -> Lease:
    lease = await expired(drive)
    await drive.reap()
    return lease


async def taken_over(drive: Driver) -> Lease:
    lease = await reaped(drive)
    await drive.hold(incarnation="w2:bb", nonce="n2")
    return lease


async def closed(drive: Driver) -> Lease:
    lease = await drive.run("m1")
    await drive.close(lease)
    return lease


async def quarantined(drive: Driver) -> Lease:
    lease = await drive.run("m1")
    await drive.stop()
    return lease


async def redriven(drive: Driver) -> Lease:
    lease = await quarantined(drive)
    await drive.redrive()
    return lease


async def dead_lettered(drive: Driver) -> Lease:
    lease = await quarantined(drive)
    await drive.dead_letter()
    return lease


async def deleted(drive: Driver) -> Lease:
    lease = await drive.run("m1")
    await drive.delete()
    return lease


async def appended(drive: Driver) -> Lease:
    lease = await drive.run("m1")
    await drive.append(lease, 1)
    return lease


async def committed_once(drive: Driver) -> Request:
    lease = await drive.run("m1")
    request = requests.commit(drive.fleet.keys, lease, await drive.commit_of("step"))
    await drive.call(request)
    return request


async def with_a_floor(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.set_head(dedup_floor=await drive.now())


async def another_server(drive: Driver) -> None:
    await drive.submit("m1")
    await drive.redis("HSET", drive.shared("meta"), "replid", "old")


def after_attempts(count: int) -> Arrange:
    async def arrange(drive: Driver) -> None:
        await drive.submit("m1")
        await drive.set_head(attempts=count)

    return arrange


# What is asked


def raising(expected: str, **given: int) -> Ask:
    async def ask(drive: Driver, _: Any) -> list[Any]:
        request = Request("raise_epoch", drive.partition, {}, {"expected": expected})
        return await drive.bare(request, **given)

    return ask


def creating(**given: int) -> Ask:
    async def ask(drive: Driver, _: Any) -> list[Any]:
        return await drive.bare(Request("init", drive.partition, {}, {}), **given)

    return ask


def submitting(id: str = "m2", **given: Any) -> Ask:
    return lambda drive, _: drive.submit(id, **given)


def scheduling(name: str = "s1", **given: Any) -> Ask:
    return lambda drive, _: drive.schedule(name, **given)


def ending(**given: Any) -> Ask:
    return lambda drive, _: drive.delete(**given)


def stopping(**given: Any) -> Ask:
    return lambda drive, _: drive.stop(**given)


def redriving(skip: int = 0, **given: Any) -> Ask:
    return lambda drive, _: drive.redrive(skip, **given)


def giving_all_up(**given: Any) -> Ask:
    return lambda drive, _: drive.dead_letter(**given)


async def claiming(drive: Driver, _: Any, **given: Any) -> list[Any]:
    return ["OK", await drive.claim(incarnation="w2:bb", nonce="n2", **given)]


async def permitting(drive: Driver, _: Any) -> list[Any]:
    asked = Permit(drive.session, "n1", "assistant", "acme")
    return await drive.call(requests.permit(drive.fleet.keys, [asked], ONE, span_ms=LATER_MS))


async def limiting(drive: Driver, _: Any, **given: Any) -> list[Any]:
    return await drive.call(drive.limit_request("r1", **given))


async def settling(drive: Driver, _: Any) -> list[Any]:
    return await drive.call(
        requests.settle_limit(drive.fleet.keys, drive.asked("r0"), tokens=9, took_ms=5)
    )


async def claiming_late(drive: Driver, _: Any) -> list[Any]:
    request = requests.claim(
        drive.partition, drive.route, [SESSION], incarnation="w2:bb", nonce="n2", ttl_ms=1000,
        max_step_ms=1000, solo=False, max_attempts=5, not_after_ms=LATE_MS,
    )  # fmt: skip
    return await drive.call(request)


async def claiming_again(drive: Driver, lease: Lease) -> list[Any]:
    return ["OK", await drive.claim(incarnation=lease.incarnation, nonce=lease.nonce)]


async def renewing(drive: Driver, lease: Lease) -> list[Any]:
    return ["OK", await drive.renew(lease, ttl_ms=LATER_MS)]


async def reaping(drive: Driver, _: Any) -> list[Any]:
    return ["OK", await drive.reap()]


async def reaping_elsewhere(drive: Driver, _: Any) -> list[Any]:
    return ["OK", await drive.reap(route="elsewhere@1")]


async def purging(drive: Driver, _: Any) -> list[Any]:
    return ["OK", [await drive.purge(window_ms=-1)]]


def appending(batch: int = 1, **given: int) -> Ask:
    return lambda drive, lease: drive.append(lease, batch, Event(type="delta"), **given)


async def giving_up(drive: Driver, lease: Lease) -> list[Any]:
    return await drive.give_up(lease, GiveUp.RELEASE)


async def evicting(drive: Driver, lease: Lease) -> list[Any]:
    return await drive.evict((SESSION, lease.token))


async def committing(drive: Driver, lease: Lease) -> list[Any]:
    return await drive.commit(lease)


SCENES: Final = (
    Scene("init", "OK", creating(), nothing, "its work"),
    Scene("init", "OK", creating(), waiting),
    Scene("init", "LAYOUT", creating(partitions=8), waiting),
    Scene("init", "LAYOUT", creating(layout=9), waiting),
    Scene("raise_epoch", "OK", raising("old"), another_server, "its work"),
    Scene("raise_epoch", "STALE", raising("older"), another_server),
    Scene("raise_epoch", "NO_FLEET", raising("old"), nothing),
    Scene("raise_epoch", "LAYOUT", raising("old", partitions=8), another_server),
    # submit
    Scene("submit", "ACCEPTED", submitting(), nothing, "its work"),
    Scene("submit", "MERGED", submitting("i1", cls="ctl"), interrupted, "its work"),
    Scene("submit", "DUPLICATE", submitting("m1"), running),
    Scene("submit", "DUPLICATE", submitting("m1"), closed),
    Scene("submit", "DUPLICATE", submitting("m1"), deleted),
    Scene("submit", "MISMATCH", submitting("m1", digest="other"), idle),
    Scene("submit", "ORDER", submitting(after="m0"), waiting),
    Scene("submit", "UNKNOWN", submitting(may_create=False), nobody),
    Scene("submit", "DELETED", submitting(may_create=False), deleted),
    Scene("submit", "CLOSED", submitting(), closed),
    Scene("submit", "ROUTE", submitting(route="elsewhere@1"), waiting),
    Scene("submit", "STALE", submitting(cls="answer", target="w9"), asking, "a warning"),
    Scene("submit", "ANSWERED", submitting(cls="answer", target="w1"), answered, "a warning"),
    Scene("submit", "NO_TURN", submitting(cls="ctl"), waiting, "a warning"),
    Scene("submit", "STALE_TURN", submitting(cls="ctl", target="t_9"), running, "a warning"),
    Scene("submit", "TOO_BIG", submitting(max_size=3), waiting),
    Scene("submit", "TOO_BIG", submitting(max_size=3), nobody),
    Scene("submit", "TOO_OLD", submitting(OLD_ID), with_a_floor),
    Scene("submit", "SKEW", submitting(FUTURE_ID), waiting),
    Scene("submit", "TOO_FAR", submitting(due_ms=2**52), waiting),
    Scene("submit", "BUSY", submitting(max_depth=1), waiting),
    Scene("submit", "BUSY", submitting(max_bytes=1), waiting),
    Scene("submit", "BUSY", submitting(policy="reject"), running),
    Scene("submit", "BUSY", submitting(), crowded),
    # control
    Scene("control", "CANCELLED", lambda drive, _: drive.cancel("m1"), waiting, "its work"),
    Scene("control", "RUNNING", lambda drive, _: drive.cancel("m1"), running),
    Scene("control", "RUNNING", lambda drive, _: drive.cancel("a0"), answered),
    Scene("control", "RUNNING", lambda drive, _: drive.cancel("i0"), interrupted),
    Scene("control", "ENDED", lambda drive, _: drive.cancel("m1"), idle),
    Scene("control", "UNKNOWN", lambda drive, _: drive.cancel("m9"), waiting),
    Scene("control", "UNKNOWN", lambda drive, _: drive.cancel("m1"), nobody),
    Scene("control", "ROUTE", lambda drive, _: drive.cancel("m1", route="else@1"), waiting),
    # indexes
    Scene("peek", "OK", lambda drive, _: drive.peek(), expired),
    Scene("reap", "OK PLACED", reaping, expired, "its work"),
    Scene("reap", "OK PLACED", reaping, waiting),
    Scene("reap", "OK BUSY", reaping, running),
    Scene("reap", "OK NONE", reaping, nobody),
    Scene("reap", "OK NONE", reaping, closed),
    Scene("reap", "OK NONE", reaping, deleted),
    Scene("reap", "OK ROUTE", reaping_elsewhere, expired),
    # claim
    Scene("claim", "OK GRANTED", claiming, waiting, "its work"),
    Scene("claim", "OK GRANTED", claiming_again, running, "its work"),
    Scene("claim", "OK BUSY", claiming, running),
    Scene("claim", "OK USED", claiming_again, given_up),
    Scene("claim", "OK USED", claiming_again, expired),
    Scene("claim", "OK LATE", claiming_late, waiting),
    Scene("claim", "OK NONE", claiming, nobody),
    Scene("claim", "OK NONE", claiming, idle),
    Scene("claim", "OK NONE", claiming, closed),
    Scene("claim", "OK NONE", claiming, deleted),
    Scene("claim", "OK NONE", claiming, expired),
    Scene("claim", "OK PAUSED", claiming, paused),
    Scene("claim", "OK QUARANTINED", claiming, after_attempts(5), "its work"),
    Scene("claim", "OK SUSPECT", claiming, after_attempts(3), "its work"),
    # what a holder sends
    Scene("renew", "OK OK", renewing, running, "its work"),
    Scene("renew", "OK LOST", renewing, taken_over),
    Scene("renew", "OK GONE", renewing, given_up),
    Scene("renew", "OK GONE", renewing, deleted),
    Scene("renew", "OK EXPIRED", renewing, expired),
    Scene("append", "OK", appending(), running, "its work"),
    Scene("append", "DROPPED", appending(cap=0), running, "its work"),
    Scene("append", "ALREADY", appending(), appended),
    Scene("append", "GAP", appending(7), appended),
    Scene("append", "DELETED", appending(), deleted),
    Scene("append", "GONE", appending(), given_up),
    Scene("append", "GONE", appending(), closed),
    Scene("append", "LOST", appending(), taken_over),
    Scene("append", "EXPIRED", appending(), expired),
    Scene("commit", "OK", committing, running, "its work"),
    Scene("commit", "REPLAY", lambda drive, request: drive.call(request), committed_once),
    Scene("give_up", "OK", giving_up, running, "its work"),
    Scene("give_up", "OK", giving_up, expired, "its work"),
    Scene("give_up", "OK", giving_up, given_up),
    Scene("give_up", "DELETED", giving_up, deleted),
    Scene("give_up", "GONE", giving_up, reaped),
    Scene("give_up", "LOST", giving_up, taken_over),
    Scene("evict", "OK", evicting, running, "its work"),
    Scene("evict", "OK", evicting, taken_over),
    # upkeep
    Scene("quarantine", "OK", stopping(), running, "its work"),
    Scene("quarantine", "OK", stopping(), quarantined),
    Scene("quarantine", "OK", stopping(number=1), redriven),
    Scene("quarantine", "STALE", stopping(), nobody),
    Scene("quarantine", "STALE", stopping(), closed),
    Scene("quarantine", "STALE", stopping(), deleted),
    Scene("quarantine", "STALE", stopping(number=3), redriven),
    Scene("quarantine", "ROUTE", stopping(route="elsewhere@1"), waiting),
    Scene("redrive", "OK", redriving(), quarantined, "its work"),
    Scene("redrive", "OK", redriving(1), quarantined, "its work"),
    Scene("redrive", "OK", redriving(), redriven),
    Scene("redrive", "STALE", redriving(1), redriven),
    Scene("redrive", "STALE", redriving(), dead_lettered),
    Scene("redrive", "STALE", redriving(number=2), quarantined),
    Scene("redrive", "STALE", redriving(number=1), running),
    Scene("redrive", "STALE", redriving(number=1), nobody),
    Scene("redrive", "STALE", redriving(), deleted),
    Scene("redrive", "INPUT", redriving(9), quarantined),
    Scene("redrive", "ROUTE", redriving(route="elsewhere@1"), quarantined),
    Scene("dead_letter", "OK", giving_all_up(), quarantined, "its work"),
    Scene("dead_letter", "OK", giving_all_up(), dead_lettered),
    Scene("dead_letter", "STALE", giving_all_up(), redriven),
    Scene("dead_letter", "STALE", giving_all_up(number=2), quarantined),
    Scene("dead_letter", "STALE", giving_all_up(number=1), nobody),
    Scene("dead_letter", "ROUTE", giving_all_up(route="elsewhere@1"), quarantined),
    Scene("delete", "OK", ending(), running, "its work"),
    Scene("delete", "OK", ending(), deleted),
    Scene("delete", "STALE", ending(), nobody),
    Scene("delete", "STALE", ending(life=2), waiting),
    Scene("delete", "MOVED", ending(at_seq=0), waiting),
    Scene("delete", "MOVED", ending(at_seq=9), idle),
    Scene("delete", "ROUTE", ending(route="elsewhere@1"), waiting),
    Scene("delete", "CONTEXT", ending(prefix_epoch=3), waiting),
    Scene("reroute", "OK", lambda drive, _: drive.reroute(), waiting, "its work"),
    Scene("reroute", "OK", lambda drive, _: drive.reroute(drive.route), waiting),
    Scene("reroute", "OK", lambda drive, _: drive.reroute(drive.route), running),
    Scene("reroute", "STALE", lambda drive, _: drive.reroute(), nobody),
    Scene("reroute", "STALE", lambda drive, _: drive.reroute(), closed),
    Scene("reroute", "STALE", lambda drive, _: drive.reroute(), deleted),
    Scene(
        "reroute", "ROUTE", lambda drive, _: drive.of(SESSION, "else@1").reroute("new@1"), waiting
    ),
    Scene("reroute", "HELD", lambda drive, _: drive.reroute(), running),
    Scene("defer", "OK", lambda drive, _: drive.defer(), waiting, "its work"),
    Scene("defer", "NONE", lambda drive, _: drive.defer(), running),
    Scene("defer", "NONE", lambda drive, _: drive.defer(), deleted),
    Scene("defer", "ROUTE", lambda drive, _: drive.defer("elsewhere@1"), waiting),
    Scene("trim", "OK", lambda drive, _: drive.trim(), waiting),
    Scene("trim", "NONE", lambda drive, _: drive.trim(), nobody),
    Scene("trim", "NONE", lambda drive, _: drive.trim(), deleted),
    Scene("purge", "OK KEPT", purging, running),
    Scene("purge", "OK KEPT", purging, idle, "its work"),
    Scene("purge", "OK PURGED", purging, deleted, "its work"),
    Scene("purge", "OK NONE", purging, nobody),
    Scene("schedule", "OK", scheduling(), nothing, "its work"),
    Scene("schedule", "OK", scheduling(), scheduled),
    Scene("schedule", "OK", scheduling(seen="v1|1000", due_ms=2000), scheduled, "its work"),
    Scene("schedule", "OK", scheduling(seen="v1|500"), scheduled),
    Scene("schedule", "OK", scheduling(seen="v1|1000", version=""), scheduled, "its work"),
    Scene("schedule", "STALE", scheduling(seen="v2|1000", due_ms=2000), scheduled),
    Scene("schedule", "STALE", scheduling(seen="v1|500", due_ms=2000), scheduled),
    Scene("schedule", "STALE", scheduling(seen="v1|500", version=""), scheduled),
    Scene("schedule", "NONE", scheduling("s2", seen="v1|1000"), scheduled),
    Scene("schedule", "FULL", scheduling("s2", most=1), scheduled),
    Scene("pressure", "OK", lambda drive, _: drive.pressure(9, 10), waiting, "its work"),
    Scene("pressure", "OK", lambda drive, _: drive.pressure(), waiting),
    Scene("full", "OK", lambda drive, _: drive.full(Crowd("acme", 9, 9)), waiting, "its work"),
    Scene("full", "OK", lambda drive, _: drive.full(), waiting),
    Scene("recount", "OK", lambda drive, _: drive.recount(1), waiting, "its work"),
    Scene("recount", "OK", lambda drive, _: drive.recount(0), waiting),
    # permit
    Scene("permit", "OK GRANTED", permitting, nothing, "its work"),
    Scene("permit", "OK FULL", permitting, full),
    # limit
    Scene("limit", "GRANTED", limiting, nothing, "its work"),
    Scene("limit", "WAIT", limiting, used_up, "its work"),
    Scene("limit", "FAR", partial(limiting, longest_ms=1), used_up),
    Scene("limit", "OK", settling, used_up, "its work"),
    # pause
    Scene("pause", "OK", lambda drive, _: drive.pause(), waiting, "its work"),
    Scene("pause", "OK", lambda drive, _: drive.resume(), waiting),
)


def words_of(name: str, reply: list[Any]) -> str:
    """The words of an answer."""
    if name in PER_SESSION and reply[0] == "OK":
        return " ".join([reply[0], *(one[0] for one in reply[1])])
    return str(reply[0])


def declared(name: str) -> set[str]:
    """Every word that a script's header names: of the call and, in prose, of its sessions."""
    known = script(name)
    prose = known.body.split("-- REPLIES")[1].split("-- USES")[0]
    named = set(known.header.replies)
    if name in PER_SESSION:
        named |= set(re.findall(r"\b[A-Z]{4,}\b|\bOK\b", prose))
    if "not_after" not in known.header.args:
        named -= {"LATE"}
    return named


def as_left(drive: Driver, scene: Scene) -> AbstractAsyncContextManager[None]:
    match scene.leaves:
        case "nothing":
            return drive.unchanged()
        case "a warning":
            return drive.only_a_warning(scene.words.lower())
        case _:
            return nullcontext()


def described(scene: Scene) -> str:
    return f"{scene.script} {scene.words} {scene.before.__name__}"


@pytest.mark.parametrize("scene", SCENES, ids=described)
async def test_a_word_says_what_was_left(drive: Driver, scene: Scene) -> None:
    """A refusal leaves nothing, or the one warning that tells people of it."""
    made = await scene.before(drive)
    before = await drive.stores.dump()
    async with as_left(drive, scene):
        reply = await scene.ask(drive, made)
    assert words_of(scene.script, reply) == scene.words
    if scene.leaves == "its work":
        assert await drive.stores.dump() != before


@pytest.mark.parametrize("name", NAMES)
def test_every_word_of_every_script_has_a_scene(name: str) -> None:
    """A word that is added to a header needs one as well."""
    shown = {word for scene in SCENES if scene.script == name for word in scene.words.split()}
    if name == "commit":
        shown |= {row.word for row in ROWS}
    if name in GUARDED:
        shown |= set(FIRST_GUARDS)
    if name in GRANTING:
        shown |= {"LATE"}
    assert shown == declared(name)
