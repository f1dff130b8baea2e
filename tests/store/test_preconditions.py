"""`commit` checks everything before it writes anything: one broken precondition, nothing changed.

Each row takes a commit that would write to every stream of the session and end its turn, breaks
one thing, and names the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from changeover_shared._events import Event, TurnCompleted
from changeover_shared._store import requests
from changeover_shared._store.records import Lease, NewWait, OutboxRow
from changeover_shared._words import GiveUp
from tests.support.driving import LATER_MS, SESSION, Driver

Break = Callable[[Driver, Lease], Awaitable[Any]]


@dataclass(frozen=True)
class Row:
    """One broken precondition."""

    what: str
    word: str
    before: Break | None = None
    """What is done to the store first."""
    commit: dict[str, Any] = field(default_factory=dict)
    """Which fields of the commit are others."""
    args: dict[str, Any] = field(default_factory=dict)
    """Which arguments of the script are others."""
    lease: dict[str, Any] = field(default_factory=dict)
    """Which parts of the lease are others."""


async def is_committed_by_another(drive: Driver, lease: Lease) -> None:
    await drive.commit(lease)


async def is_taken_over(drive: Driver, lease: Lease) -> None:
    await drive.expire()
    await drive.reap()
    await drive.hold(incarnation="w2:bb", nonce="n2")


async def expires(drive: Driver, lease: Lease) -> None:
    await drive.expire()


async def is_evicted(drive: Driver, lease: Lease) -> None:
    await drive.evict((SESSION, lease.token))


async def is_given_up(drive: Driver, lease: Lease) -> None:
    await drive.give_up(lease, GiveUp.HAND_OFF)


async def is_closed(drive: Driver, lease: Lease) -> None:
    await drive.close(lease)


async def is_deleted(drive: Driver, lease: Lease) -> None:
    await drive.wipe_out()


async def is_interrupted(drive: Driver, lease: Lease) -> None:
    await drive.interrupt("i1")


async def is_cancelled(drive: Driver, lease: Lease) -> None:
    await drive.cancel("m2")


async def has_a_wait(drive: Driver, lease: Lease) -> None:
    await drive.commit(lease, waits=(NewWait("w1", "approval"),))


async def is_rerouted(drive: Driver, lease: Lease) -> None:
    await drive.set_head(route="elsewhere@1")


NOBODY = "somebody of the same partition that has never been heard of"
GOES_ON: dict[str, Any] = {"kind": "step", "end": "", "turn_record": "", "next": "hold"}
PARKS: dict[str, Any] = {**GOES_ON, "next": "park"}
ROWS = (
    Row("revision is too old", "CONFLICT", is_committed_by_another, {"rev": 1}),
    Row("revision is not there yet", "REWOUND", commit={"rev": 7}),
    Row("turn is another", "CONFLICT", commit={"turn": "t_2"}),
    Row("turn is none", "CONFLICT", commit={"turn": ""}),
    Row("turn starts twice", "CONFLICT", commit={"kind": "start", "turn": "t_2", "take": (2,)}),
    Row("fence is stale", "LOST", is_taken_over),
    Row("fence is too new", "LOST", lease={"fence": 9}),
    Row("incarnation is another", "LOST", lease={"incarnation": "w2:bb"}),
    Row("nonce is another", "LOST", lease={"nonce": "other"}),
    Row("lease has expired", "EXPIRED", expires),
    Row("lease was evicted", "EXPIRED", is_evicted),
    Row("lease was given up", "GONE", is_given_up),
    Row("session is closed", "GONE", is_closed),
    Row("session is deleted", "DELETED", is_deleted, {"turn": "t_1"}),
    Row("session is unknown", "GONE", commit={"outbox": ()}, lease={"session_id": NOBODY}),
    Row("outbox row is another session's", "BINDING", commit={
        "outbox": (OutboxRow("r1", SESSION, "{}"), OutboxRow("r2", "other", "{}"))}),
    Row("turn was interrupted", "CONTROL", is_interrupted),
    Row("requeued turn was interrupted", "CONTROL", is_interrupted, {"end": "requeue"}),
    Row("input was never there", "INPUT", commit={"take": (2, 9)}),
    Row("input is held already", "INPUT", commit={"take": (1,)}),
    Row("input was cancelled", "INPUT", is_cancelled, {"take": (2,)}),
    Row("input is not due", "INPUT", commit={"take": (3,)}),
    Row("take takes nothing", "INPUT", commit={**GOES_ON, "kind": "take", "take": ()}),
    Row("wait is unknown", "INPUT", commit={"consume": (("w9", 1),)}),
    Row("wait is not answered", "INPUT", has_a_wait, {"consume": (("w1", 4),)}),
    Row("closed wait is unknown", "INPUT", commit={"closes": ("w9",)}),
    Row("wait is closed twice", "INPUT", has_a_wait, {"closes": ("w1", "w1")}),
    Row("park waits for nothing", "BAD_PARK", commit=PARKS),
    Row("park on a job has no end", "BAD_PARK", commit={
        **PARKS, "waits": (NewWait("j1", "job"),)}),
    Row("park ends its turn", "BAD_PARK", commit={
        "next": "park", "waits": (NewWait("w1", "approval"),)}),
    Row("close keeps its turn", "BAD_PARK", commit={**GOES_ON, "next": "close"}),
    Row("quarantine ends its turn", "BAD_PARK", commit={"next": "quarantine"}),
    Row("session waits elsewhere", "ROUTE", is_rerouted),
    Row("context epoch is left out", "CONTEXT", commit={"context_epoch": 2}),
    Row("context epoch stays", "CONTEXT", commit={"context_epoch": 0}),
    Row("commit is too big", "TOO_BIG", commit={"items": ("x" * 33_554_432,)}),
    Row("partition was never made", "NO_FLEET", args={"meta": True}),
    Row("fleet has other partitions", "LAYOUT", args={"partitions": 8}),
    Row("layout is another", "LAYOUT", args={"layout": 2}),
    Row("server is another", "EPOCH", args={"replid": "another"}),
)  # fmt: skip

WHOLE: dict[str, Any] = {
    "kind": "end",
    "end": "completed",
    "next": "release",
    "progress": True,
    "take": (2,),
    "items": ("one", "two"),
    "events": (Event(type="x"), TurnCompleted(submission_ids=("m1",), text="done")),
    "outbox": (OutboxRow("r1", SESSION, "{}"),),
    "turn_record": "the record",
    "context": "the prefix",
    "context_epoch": 1,
    "keep_from": 1,
}


async def ready_to_commit(drive: Driver) -> Lease:
    """A turn that holds one input, while one waits and one is not due."""
    lease = await drive.run("m1")
    await drive.submit("m2")
    await drive.submit("m3", due_ms=await drive.now() + LATER_MS)
    return lease


@pytest.mark.parametrize("row", ROWS, ids=[row.what for row in ROWS])
async def test_one_failed_precondition_leaves_every_key_byte_identical(
    drive: Driver, row: Row
) -> None:
    """Case R2: the answer names what was wrong, and nothing of the commit is there."""
    lease = await ready_to_commit(drive)
    if row.before is not None:
        await row.before(drive, lease)
    given = {**WHOLE, **row.commit}
    commit = await drive.commit_of(given.pop("kind"), **given)
    lease = replace(lease, **row.lease)
    if lease.session_id == NOBODY:
        lease = replace(lease, session_id=drive.neighbour("nobody").session)
    request = requests.commit(drive.fleet.keys, lease, commit)
    args = dict(row.args)
    if args.pop("meta", False):
        missing = drive.partition.named("no such partition")
        request = replace(request, keys={**request.keys, "meta": missing})
    async with drive.unchanged():
        assert (await drive.bare(request, **args))[0] == row.word


async def test_the_same_commit_with_nothing_broken_is_written(drive: Driver) -> None:
    """Case R2: so each refusal above is for what its row breaks."""
    lease = await ready_to_commit(drive)
    given = dict(WHOLE)
    assert (await drive.commit(lease, given.pop("kind"), **given))[0] == "OK"
    assert await drive.bodies("transcript") == {1: "one", 2: "two"}
    assert await drive.bodies("turns") == {1: "the record"}
    for id in ("m1", "m2"):
        assert (await drive.receipt(id) or {})["ending"] == "completed"
    assert (await drive.work()).keys() == {"3"}


async def test_a_counter_at_its_end_is_refused_before_the_first_write(drive: Driver) -> None:
    """Case R2: numbers that Lua could not hold are never written."""
    lease = await ready_to_commit(drive)
    await drive.set_head(seq=9007199254730993)
    commit = await drive.commit_of("step", events=(Event(type="x"),))
    async with drive.unchanged():
        with pytest.raises(Exception, match="LIMIT seq"):
            await drive.bare(requests.commit(drive.fleet.keys, lease, commit))
