"""Raw replies and hashes as typed records. Pure: shared by the async and the sync stores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, cast, get_args

from pydantic import ValidationError

from changeover_shared._errors import (
    AlreadyDecided,
    Busy,
    ChangeoverError,
    Closed,
    Deleted,
    IdExpired,
    IdReused,
    Invalid,
    LeaseError,
    LeaseExpired,
    LeaseGone,
    LeaseLost,
    NotWaiting,
    PayloadError,
    SessionDeleted,
    TooLarge,
    UnknownSession,
)
from changeover_shared._events import Event, decode_event
from changeover_shared._items import decode_item
from changeover_shared._results import Pause, TranscriptItem, TurnRecord, WorkerInfo, at
from changeover_shared._store.keys import queue_of
from changeover_shared._store.payloads import Kind, SessionPayloads, is_sealed
from changeover_shared._store.records import (
    Admission,
    Appended,
    CancelAnswer,
    ClaimRefused,
    CommitRefusal,
    CommitRefused,
    Committed,
    Crowd,
    Grant,
    Head,
    InboxEntry,
    Lease,
    Memory,
    NoTurn,
    Peeked,
    Permitted,
    Pulse,
    Refusals,
    Renewed,
    Standing,
    SubmissionState,
    Submit,
    Submitted,
    Wait,
    Waiting,
    Work,
)
from changeover_shared._units import show_duration
from changeover_shared._words import Ending, Status

Entry = tuple[bytes, dict[bytes, bytes]]


def pairs(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """A flat `[field, value, ...]` reply as pairs."""
    return zip(flat[::2], flat[1::2], strict=True)


def entries(raw: Sequence[Any] | None) -> list[Entry]:
    """Stream entries as (id, fields)."""
    return [(entry, dict(pairs(fields))) for entry, fields in raw or ()]


def number_in(entry: bytes) -> int:
    """The number of a stream id `<n>-0`."""
    return int(entry.partition(b"-")[0])


def head(flat: Sequence[bytes], payloads: SessionPayloads | None = None) -> Head | None:
    """A session's head hash; None when there is none. Without `payloads`, what is encrypted is
    left out."""
    if not flat:
        return None
    raw = _fields(flat, payloads)

    def number(field: str) -> int:
        return int(raw.get(field) or 0)

    return Head(
        status=Status(raw["status"]),
        life=number("life"),
        route=raw.get("route", ""),
        agent=raw.get("agent", ""),
        tenant=raw.get("tenant", ""),
        priority=number("priority"),
        fence=number("fence"),
        rev=number("rev"),
        seq=number("seq"),
        first_seq=number("first_seq") or 1,
        first_turn=number("first_turn") or 1,
        n=number("n"),
        turn=raw.get("turn", ""),
        turns=number("turns"),
        transcript_n=number("transcript_n"),
        ctl_turn=raw.get("ctl_turn", ""),
        ctl_kind=raw.get("ctl_kind", ""),
        ctl_sub=raw.get("ctl_sub", ""),
        ctl_epoch=number("ctl_epoch"),
        parked=raw.get("parked") == "1",
        attempts=number("attempts"),
        epoch=number("epoch") or 1,
        context=raw.get("context", "{}"),
        parent=raw.get("parent", ""),
        created_ms=number("created_ms"),
        at_ms=number("at_ms"),
        context_epoch=number("context_epoch"),
        quarantine_no=number("quarantine_no"),
        stopped=raw.get("stopped", ""),
        raw=raw,
    )


_SEALED: Final[Mapping[bytes, Kind]] = {
    b"context": "context",
    b"ctl_body": "submission",
    b"stopped": "event",
}
"""The fields of a head that hold what was said."""


def _fields(flat: Sequence[bytes], payloads: SessionPayloads | None) -> dict[str, str]:
    raw = {}
    for field, value in pairs(flat):
        if not is_sealed(value):
            raw[field.decode()] = value.decode()
        elif payloads is not None:
            raw[field.decode()] = payloads.open(_SEALED[field], value).decode()
    return raw


def pulse(values: Sequence[bytes | None]) -> Pulse | None:
    """The fields of a head that `Store.pulse` reads; None when there is no head."""
    status, seq, first_seq, epoch, epoch_seq = values
    if status is None:
        return None
    return Pulse(
        status=Status(status.decode()),
        seq=int(seq or 0),
        first_seq=int(first_seq or 1),
        epoch=int(epoch or 1),
        epoch_seq=int(epoch_seq or 1),
    )


def work(flat: Sequence[bytes]) -> Work:
    """A session's open work, in order of position."""
    inputs: list[Waiting] = []
    waits: list[Wait] = []
    for field, value in pairs(flat):
        name, parts = field.decode(), value.decode().split("|")
        if name.startswith("w:"):
            waits.append(Wait(name[2:], parts[0], int(parts[1]), parts[2], int(parts[3])))
        elif name != "_":
            kind, due, turn, group, submission, key, size = parts
            inputs.append(
                Waiting(
                    int(name), cast(Any, kind), int(due), turn, group, submission, key, int(size)
                )
            )
    return Work(tuple(sorted(inputs, key=lambda one: one.n)), tuple(waits))


def inbox(raw: Sequence[Any] | None, payloads: SessionPayloads) -> tuple[InboxEntry, ...]:
    """Bodies of submissions."""
    return tuple(
        InboxEntry(
            number_in(entry),
            fields[b"sub"].decode(),
            payloads.open("submission", fields[b"body"]),
            int(fields[b"at"]),
        )
        for entry, fields in entries(raw)
    )


def events(raw: Sequence[Any] | None, payloads: SessionPayloads) -> tuple[Event, ...]:
    """Journal entries."""
    return tuple(
        decode_event(entry, {**fields, b"body": payloads.open("event", fields[b"body"])})
        for entry, fields in entries(raw)
    )


def transcript(raw: Sequence[Any] | None, payloads: SessionPayloads) -> tuple[TranscriptItem, ...]:
    """Transcript entries."""
    return tuple(
        TranscriptItem(n=number_in(entry), item=decode_item(payloads.open("item", fields[b"body"])))
        for entry, fields in entries(raw)
    )


def turn_records(
    raw: Sequence[Any] | None, payloads: SessionPayloads
) -> tuple[tuple[int, TurnRecord], ...]:
    """Finished turns with their numbers."""
    return tuple(
        (
            number_in(entry),
            TurnRecord.model_validate_json(payloads.open("turn", fields[b"body"])),
        )
        for entry, fields in entries(raw)
    )


def checkpoint(raw: Sequence[Any] | None, payloads: SessionPayloads) -> bytes | None:
    """The checkpoint in a one-entry reply; None when there is none."""
    found = entries(raw)
    return payloads.open("checkpoint", found[0][1][b"body"]) if found else None


def receipt(submission_id: str, value: bytes | None) -> SubmissionState | None:
    """A receipt; None for an unknown submission."""
    if value is None:
        return None
    _, n, seq, accepted, ending, turn, end_seq, ended = value.decode().split("|")
    return SubmissionState(
        submission_id=submission_id,
        n=int(n),
        seq=int(seq),
        ending=Ending(ending) if ending else None,
        turn=turn,
        end_seq=int(end_seq or 0),
        accepted_ms=int(accepted),
        ended_ms=int(ended or 0),
    )


def submitted(reply: list[Any], asked: Submit) -> Submitted | NoTurn | ChangeoverError:
    """What the submit script answered; refusals as the errors that say so."""
    word, *values = reply
    match word:
        case "ACCEPTED":
            n, seq, turn, status, ready, position, agent, route, replaced = values
            return Submitted(
                word="ACCEPTED",
                n=int(n),
                seq=int(seq),
                turn=turn.decode(),
                status=Status(status.decode()),
                ready_count=int(ready),
                position=int(position),
                agent=agent.decode(),
                route=route.decode(),
                replaced=tuple(one.decode() for one in replaced),
            )
        case "MERGED":
            seq, turn = values
            return Submitted(
                word="MERGED",
                n=0,
                seq=int(seq),
                turn=turn.decode(),
                status=Status.HELD,
                ready_count=0,
                position=0,
                agent="",
                route="",
            )
        case "DUPLICATE":
            n, seq, turn, status, ending, agent, route, position = values
            return Submitted(
                word="DUPLICATE",
                n=int(n),
                seq=int(seq),
                turn=turn.decode(),
                status=Status(status.decode() or Status.DELETED),
                ready_count=0,
                position=int(position),
                agent=agent.decode(),
                route=route.decode(),
                ending=Ending(ending.decode()) if ending else None,
            )
        case "NO_TURN":
            return NoTurn("")
        case "STALE_TURN":
            return NoTurn(values[0].decode())
    return _refusal(word, values, asked)


def _refusal(word: str, values: list[Any], asked: Submit) -> ChangeoverError:
    session_id, submission_id = asked.session_id, asked.submission_id
    match word:
        case "MISMATCH":
            return IdReused(
                session_id=session_id, submission_id=submission_id, first=at(int(values[0]))
            )
        case "UNKNOWN":
            return UnknownSession(session_id=session_id)
        case "DELETED":
            return Deleted(session_id=session_id)
        case "CLOSED":
            return Closed(session_id=session_id)
        case "STALE":
            return NotWaiting(session_id=session_id, request_id=asked.target)
        case "ANSWERED":
            return AlreadyDecided(session_id=session_id, request_id=asked.target)
        case "TOO_BIG":
            return TooLarge(what="submission", size=int(values[0]), limit=int(values[1]))
        case "TOO_OLD":
            return IdExpired(
                submission_id=submission_id, reason="is older than the deduplication floor"
            )
        case "SKEW":
            return IdExpired(submission_id=submission_id, reason="is from the future")
        case "TOO_FAR":
            field = "delay" if asked.delay_ms else "at"
            limit = show_duration(timedelta(milliseconds=int(values[0])))
            reason = f"it is more than {limit} from now on Redis's clock"
            return Invalid(field=field, reason=reason, unchanged="nothing was accepted")
        case "BUSY":
            return Busy(
                session_id=session_id,
                scope=values[0].decode(),
                depth=int(values[1]),
                limit=int(values[2]),
                retry_after=timedelta(milliseconds=int(values[3])),
            )
        case _:
            raise AssertionError(f"submit answered {word!r}")


def cancelled(reply: list[Any]) -> CancelAnswer:
    """What the control script answered."""
    match reply:
        case ["CANCELLED"]:
            return CancelAnswer("CANCELLED")
        case ["RUNNING", turn, status]:
            stopped = status.decode() == Status.QUARANTINED
            return CancelAnswer("RUNNING", turn.decode(), quarantined=stopped)
        case ["ENDED", ending, turn]:
            return CancelAnswer("ENDED", turn.decode(), Ending(ending.decode()))
        case ["UNKNOWN"]:
            return CancelAnswer("UNKNOWN")
        case _:
            raise AssertionError(f"control answered {reply!r}")


def lease_error(reply: list[Any], session_id: str, fence: int) -> LeaseError | None:
    """The error for a reply that says that the caller may not write; None for any other."""
    match reply[0]:
        case "DELETED":
            return SessionDeleted(session_id=session_id)
        case "GONE":
            return LeaseGone(session_id=session_id, fence=fence)
        case "LOST":
            return LeaseLost(session_id=session_id, fence=fence, current=int(reply[1]))
        case "EXPIRED":
            return LeaseExpired(session_id=session_id, fence=fence)
        case _:
            return None


def claimed(
    answer: list[Any], payloads: SessionPayloads, incarnation: str, nonce: str
) -> Grant | ClaimRefused:
    """One session's part of a claim. A grant that cannot be read here says so and is a grant."""
    session_id = payloads.session_id
    word = answer[0].decode()
    if word != "GRANTED":
        remaining = int(answer[1]) if word == "BUSY" else 0
        why = answer[1].decode() if word == "QUARANTINED" else ""
        return ClaimRefused(session_id, cast(Any, word), remaining, why)
    _, fence, remaining, lapsed, head_flat, work_flat, body, bodies = answer
    unreadable: PayloadError | None = None
    try:
        found = head(head_flat, payloads)
        body = payloads.open("checkpoint", body)
        inputs = inbox(bodies, payloads)
    except PayloadError as why:
        found, body, inputs, unreadable = head(head_flat), b"", (), why
    assert found is not None, "a granted session has a head"
    return Grant(
        lease=Lease(session_id, int(fence), incarnation, nonce, found.route),
        remaining_ms=int(remaining),
        head=found,
        work=work(work_flat),
        checkpoint=body or None,
        inbox=inputs,
        lapsed=lapsed.decode(),
        unreadable=unreadable,
    )


def memory(info: bytes) -> Memory:
    """What INFO says of memory, without what the server does not count itself."""
    facts = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    uncounted = int(facts.get("mem_not_counted_for_evict", 0))
    return Memory(int(facts["used_memory"]) - uncounted, int(facts.get("maxmemory", 0)))


def peeked(reply: list[Any]) -> Peeked:
    """What a partition's indexes show."""
    _, expired, due, sets, pressure_ms, waiting, told = reply
    until_ms, crowded = full(told)
    return Peeked(
        expired=tuple(one.decode() for one in expired),
        due=tuple(one.decode() for one in due),
        ready=tuple(tuple(one.decode() for one in found[1:]) for found in sets),
        counts=tuple(int(found[0]) for found in sets),
        pressure_ms=int(pressure_ms),
        waiting=sums(waiting),
        full=crowded,
        full_until_ms=until_ms,
    )


def sums(flat: Any) -> dict[str, int]:
    """How many submissions wait, of `EVERYBODY` and of each tenant that has any."""
    found = {whose.decode(): int(count) for whose, count in pairs(flat)}
    found.pop("!", None)
    return found


def refused_at(pressure: bytes | None, told: bytes | None, now_ms: int) -> Refusals:
    """Why messages are refused at a time, from what a partition was told."""
    used, limit, pressed_ms = map(int, (pressure or b"0|0|0").split(b"|"))
    full_ms, crowded = full(told or b"")
    return Refusals(
        (used, limit) if pressed_ms > now_ms else None, crowded if full_ms > now_ms else ()
    )


def full(told: bytes) -> tuple[int, tuple[Crowd, ...]]:
    """Until when messages are refused because too many wait, and whose; 0 when nobody's are."""
    if not told:
        return 0, ()
    until, *parts, _ = told.decode().split("|")
    crowded = []
    for part in parts:
        whose, _, counts = part.partition("=")
        depth, _, limit = counts.partition("/")
        crowded.append(Crowd(whose, int(depth), int(limit)))
    return int(until), tuple(crowded)


def renewed(answers: Sequence[list[bytes]], leases: Sequence[Lease]) -> tuple[Renewed, ...]:
    """One answer per lease, in order."""
    return tuple(
        Renewed(lease.session_id, cast(Any, word.decode()), int(left), int(alert), int(fence))
        for lease, (word, left, alert, fence) in zip(leases, answers, strict=True)
    )


def permitted(answers: Sequence[list[bytes]]) -> tuple[Permitted, ...]:
    """One answer per session, in order."""
    return tuple(
        Permitted(int(value)) if word == b"GRANTED" else Permitted(0, value.decode())
        for word, value in answers
    )


def admission(reply: list[Any]) -> Admission:
    """Whether a model may be asked."""
    if reply[0] == "GRANTED":
        return Admission()
    return Admission(int(reply[1]), reply[0] == "FAR")


def appended(reply: list[Any]) -> Appended:
    """An append, done now or before."""
    word, first, ctl_epoch, n, *before = reply
    dropped = word == "DROPPED" or before == [b"DROPPED"]
    return Appended(int(first), int(ctl_epoch), int(n), dropped=dropped)


def committed(reply: list[Any]) -> Committed | CommitRefused:
    """A commit, done now or before, or why not."""
    word, *values = reply
    if word in ("OK", "REPLAY"):
        held, rev, first, n, ctl_epoch, ctl_kind, waiting, ready, status = values
        return Committed(
            held=held == b"held",
            rev=int(rev),
            first_seq=int(first),
            n=int(n),
            ctl_epoch=int(ctl_epoch),
            ctl_kind=ctl_kind.decode(),
            waiting=int(waiting),
            ready_count=int(ready),
            status=Status(status.decode()),
            replayed=word == "REPLAY",
        )
    if word in get_args(CommitRefusal):
        flat = values[0] if word == "INPUT" else values
        return CommitRefused(word, tuple(one.decode() for one in flat))
    raise AssertionError(f"commit answered {word!r}")


def workers(flat: Sequence[bytes]) -> tuple[WorkerInfo, ...]:
    """The registry; entries of a release that says it otherwise are left out."""
    found = []
    for _, value in pairs(flat):
        with suppress(ValidationError):
            found.append(WorkerInfo.model_validate_json(value))
    return tuple(found)


def standing(fields: Sequence[bytes | None]) -> Standing:
    """Where a session stands; one that was deleted meanwhile has no queue."""
    status, route, at_ms, deferred, not_before = (
        value.decode() if value else "" for value in fields
    )
    aside_ms = int(not_before or 0) if deferred else 0
    return Standing(Status(status or Status.DELETED), queue_of(route), int(at_ms or 0), aside_ms)


def paused(meta: Sequence[bytes]) -> dict[str, Pause]:
    """Queue -> why it is paused, from a partition's `meta`; how a later release says why is left
    out."""
    found: dict[str, Pause] = {}
    for field, said in pairs(meta):
        kind, _, queue = field.decode().partition(":")
        if kind == "paused" and queue:
            try:
                found[queue] = Pause.model_validate_json(said)
            except ValidationError:
                found[queue] = Pause()
    return found


def agent_policies(flat: Sequence[bytes]) -> dict[str, str]:
    """Agent -> its policy as it is written; entries that say it otherwise are left out."""
    found: dict[str, str] = {}
    for agent, value in pairs(flat):
        with suppress(ValueError):
            entry = json.loads(value)
            if isinstance(entry, dict) and isinstance(entry.get("policy"), str):
                found[agent.decode()] = entry["policy"]
    return found


def routes(fields: Sequence[bytes]) -> tuple[str, ...]:
    """The routes in which sessions of a partition have ever waited, from the fields of `vt`:
    `V:<route>` and `F:<route>:<tenant>`."""
    return tuple(sorted({field.decode().split(":")[1] for field in fields}))


def renewed_at_ms(said: bytes) -> int:
    """When a registered worker last spoke, whatever its release; 0 where it does not say."""
    with suppress(ValueError, TypeError, AttributeError):
        return int(json.loads(said).get("renewed_at_ms"))
    return 0


def context(text: str) -> dict[str, str]:
    """A session's context."""
    return dict(json.loads(text or "{}"))
