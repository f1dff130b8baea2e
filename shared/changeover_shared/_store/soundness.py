"""Whether what is stored of one session agrees with itself. No I/O here.

Every script leaves a session so, whatever was lost around it; what does not agree is damage: a
restored backup, a hand at the keys, or a mistake of this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from changeover_shared._store.records import Head, SubmissionState, Work
from changeover_shared._words import SUSPECT_AFTER, Status

Place = Literal["none", "leases", "ready", "timers"]

_ABSORBED = (Status.QUARANTINED, Status.CLOSED, Status.DELETED)


@dataclass(frozen=True, slots=True)
class Stream:
    """How many entries a stream has, and the numbers of its first and last (0 without)."""

    length: int = 0
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """What plain reads found of one session, at one moment."""

    session_id: str
    head: Head
    work: Work
    owner: str = ""
    """The lease string of its holder, or ''."""
    lease_ms: int | None = None
    """Its score in `leases`; None when it is not there. So the next two."""
    timer_ms: int | None = None
    ready: bool = False
    solo: bool = False
    quarantined: bool = False
    listed: bool = False
    """It stands in the partition's catalogue."""
    buried: bool = False
    """It stands among the partition's tombstones."""
    inbox: int = 0
    """How many bodies its inbox has."""
    journal: Stream = Stream()
    transcript: Stream = Stream()
    checkpoint: Stream = Stream()
    has_prefix: bool = True
    """The rewritten prefix of its context epoch exists."""
    receipts: Mapping[str, SubmissionState] | None = None
    settled: int = 0
    """How many receipts the age index holds."""
    left: tuple[str, ...] = ()
    """Keys of a deleted session that should be gone, or should have an end."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing that does not agree."""

    code: Literal[
        "wrong_index",
        "wrong_status",
        "wrong_quarantine",
        "lost_body",
        "wrong_receipt",
        "damaged_stream",
        "not_listed",
        "left_behind",
    ]
    text: str


def place_of(head: Head, work: Work, *, owned: bool, now_ms: int) -> tuple[Place, int]:
    """Which index a session belongs into, and at which time for `timers`: what `place.lua` says."""
    if head.status in _ABSORBED:
        return "none", 0
    if owned:
        return "leases", 0
    not_before = int(head.raw.get("not_before") or 0)
    if not_before > now_ms and not head.ctl_turn:
        return "timers", not_before
    if not head.turn:
        times = [one.due_ms for one in work.waiting if one.kind != "answer" and not one.turn]
    elif not head.parked or head.ctl_turn or any(wait.answer_n for wait in work.waits):
        return "ready", 0
    else:
        times = [wait.deadline_ms for wait in work.waits if wait.deadline_ms]
    if not times:
        return "none", 0
    earliest = min(times)
    return ("ready", 0) if earliest <= now_ms else ("timers", earliest)


def defects(stored: Stored, now_ms: int) -> Iterator[Defect]:
    """Everything that does not agree."""
    yield from _index(stored, now_ms)
    yield from _catalogue(stored)
    yield from _streams(stored)
    if stored.head.status is Status.DELETED:
        for key in stored.left:
            yield Defect("left_behind", f"was deleted and still has {key}")
        return
    yield from _inbox(stored)
    if stored.receipts is not None:
        yield from _receipts(stored, stored.receipts)


def _index(stored: Stored, now_ms: int) -> Iterator[Defect]:
    head = stored.head
    place, time = place_of(head, stored.work, owned=bool(stored.owner), now_ms=now_ms)
    found: dict[Place, bool] = {
        "leases": stored.lease_ms is not None,
        "ready": stored.ready or stored.solo,
        "timers": stored.timer_ms is not None,
    }
    names = [name for name, there in found.items() if there]
    # What was to be looked at by now lies in `timers` until somebody reaps it, whatever it became.
    unreaped = not stored.owner and names == ["timers"] and (stored.timer_ms or 0) <= now_ms
    unreaped = unreaped and head.status not in _ABSORBED
    if names != ([] if place == "none" else [place]) and not unreaped:
        where = " and ".join(names) or "no index"
        yield Defect("wrong_index", f"is in {where} and belongs into {place}")
    elif place == "ready" and not unreaped and stored.solo != (head.attempts >= SUSPECT_AFTER):
        yield Defect("wrong_index", f"has {head.attempts} attempts and is in the wrong ready set")
    elif place == "timers" and not unreaped and stored.timer_ms != time:
        yield Defect("wrong_index", f"is due at {time} and in timers at {stored.timer_ms}")
    status = _status_of(head, "timers" if unreaped else place)
    if head.status is not status:
        yield Defect("wrong_status", f"is {head.status} and should be {status}")
    if stored.quarantined != (head.status is Status.QUARANTINED):
        there = "is" if stored.quarantined else "is not"
        yield Defect("wrong_quarantine", f"is {head.status} and {there} listed as quarantined")


def _status_of(head: Head, place: Place) -> Status:
    if head.status in _ABSORBED:
        return head.status
    if place == "leases":
        return Status.HELD
    if place == "ready":
        return Status.READY
    return Status.PARKED if head.turn else Status.IDLE


def _catalogue(stored: Stored) -> Iterator[Defect]:
    deleted = stored.head.status is Status.DELETED
    if stored.listed == deleted:
        yield Defect(
            "not_listed",
            "was deleted and is still listed" if deleted else "is in no list of sessions",
        )
    if deleted and not stored.buried:
        yield Defect("not_listed", "was deleted and is not among the tombstones: no purge finds it")


def _streams(stored: Stored) -> Iterator[Defect]:
    head, journal = stored.head, stored.journal
    # What the life before left stays until the next trim.
    oldest = head.first_seq if head.life <= 1 else min(head.first_seq, journal.first)
    if journal.length and (
        journal.last != head.seq or journal.first < oldest or journal.length > head.seq - oldest + 1
    ):
        yield Defect(
            "damaged_stream",
            f"has {journal.length} events from {journal.first} to {journal.last}, its head says "
            f"{oldest} to {head.seq}",
        )
    if head.status is Status.DELETED:
        return
    if not journal.length and head.seq >= head.first_seq:
        yield Defect("damaged_stream", f"has no events, its head says up to {head.seq}")
    if stored.transcript.length and stored.transcript.last != head.transcript_n:
        yield Defect(
            "damaged_stream",
            f"has transcript items up to {stored.transcript.last}, its head says "
            f"{head.transcript_n}",
        )
    if stored.checkpoint.length and stored.checkpoint.last != head.rev:
        yield Defect(
            "damaged_stream",
            f"has checkpoint {stored.checkpoint.last} and revision {head.rev}",
        )
    if not stored.has_prefix:
        yield Defect("damaged_stream", f"has lost the context of its epoch {head.context_epoch}")


def _inbox(stored: Stored) -> Iterator[Defect]:
    if stored.inbox != len(stored.work.waiting):
        yield Defect(
            "lost_body",
            f"has {stored.inbox} bodies in its inbox for {len(stored.work.waiting)} open "
            "submissions",
        )


def _receipts(stored: Stored, receipts: Mapping[str, SubmissionState]) -> Iterator[Defect]:
    open_ones = {one.submission_id for one in stored.work.waiting}
    if stored.head.ctl_sub:
        open_ones.add(stored.head.ctl_sub)
    said = {name for name, receipt in receipts.items() if receipt.ending is None}
    for name in sorted(open_ones - said):
        known = receipts.get(name)
        yield Defect(
            "wrong_receipt",
            f"{name} is open and its receipt says " + (str(known.ending) if known else "nothing"),
        )
    for name in sorted(said - open_ones):
        yield Defect("wrong_receipt", f"{name} never ends: its receipt is open and nothing waits")
    ended = len(receipts) - len(said)
    if stored.settled != ended:
        yield Defect(
            "wrong_receipt",
            f"{ended} receipts are settled and {stored.settled} have an end in the age index",
        )
