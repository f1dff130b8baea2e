"""What the store found, as the results that callers read. No I/O here."""

from __future__ import annotations

import json
from collections.abc import Iterator

from changeover._checkpoints import checkpoint_of
from changeover._quarantine import is_quarantined, quarantined_of
from changeover_shared._errors import (
    Busy,
    CancelledSubmission,
    ChangeoverError,
    DeadLettered,
    NotCompleted,
    Superseded,
    TurnAborted,
    TurnFailed,
)
from changeover_shared._events import Gap
from changeover_shared._results import (
    Cancelled,
    Interrupted,
    Outcome,
    Receipt,
    Refused,
    SessionInfo,
    TurnRecord,
    shown_time,
)
from changeover_shared._store.keys import queue_of
from changeover_shared._store.records import (
    CancelAnswer,
    Head,
    NoTurn,
    Snapshot,
    SubmissionState,
    Submit,
    Submitted,
)
from changeover_shared._words import Ending, SessionStatus, Status

_ANSWERS = {"ACCEPTED": "accepted", "MERGED": "merged", "DUPLICATE": "duplicate"}
_NOT_COMPLETED: dict[Ending, type[NotCompleted]] = {
    Ending.FAILED: TurnFailed,
    Ending.ABORTED: TurnAborted,
    Ending.SUPERSEDED: Superseded,
    Ending.CANCELLED: CancelledSubmission,
    Ending.DEAD_LETTERED: DeadLettered,
}
_SHOWN: dict[Status, SessionStatus] = {
    Status.IDLE: "idle",
    Status.READY: "ready",
    Status.HELD: "running",
    Status.PARKED: "parked",
    Status.QUARANTINED: "quarantined",
    Status.CLOSED: "closed",
    Status.DELETED: "deleted",
}
LIMITED_MS = 5_000
"""How long after a session stepped aside nobody has looked again."""
SHOWN_DUE = 3
"""How many messages that wait for their time a session is shown with."""
_CANCELS = {
    "CANCELLED": "cancelled",
    "RUNNING": "already_running",
    "ENDED": "already_ended",
    "UNKNOWN": "unknown",
}


def receipt_of(submit: Submit, submitted: Submitted) -> Receipt:
    """The receipt of a submission that is durable."""
    return Receipt.model_validate(
        {
            "session_id": submit.session_id,
            "submission_id": submit.submission_id,
            "answer": _ANSWERS[submitted.word],
            "position": submitted.position,
            "seq": submitted.seq,
            "replaced": submitted.replaced,
        }
    )


def refused_of(session_id: str, submission_id: str, error: ChangeoverError) -> Refused:
    """What `submit_many` answers for a submission that was not accepted."""
    retry_after = error.retry_after.total_seconds() if isinstance(error, Busy) else None
    return Refused(
        session_id=session_id,
        submission_id=submission_id,
        code=error.code,
        text=str(error),
        retry_after_ms=None if retry_after is None else round(retry_after * 1000),
    )


def refused_item(item: object, error: ChangeoverError) -> Refused:
    """The same for what may be no submission at all: what cannot be known of it is ''."""
    return refused_of(_text_of(item, "session"), _text_of(item, "id"), error)


def interrupted_of(submit: Submit, found: Submitted | NoTurn) -> Interrupted:
    """What an interrupt came to."""
    turn = found.turn
    if isinstance(found, NoTurn):
        answer = "stale_turn" if submit.target and turn else "no_turn"
    else:
        answer = _ANSWERS[found.word]
        if found.ending is not None:
            # The turn that it stopped is over; the one that runs now is not its own.
            turn = ""
    return Interrupted.model_validate(
        {
            "session_id": submit.session_id,
            "submission_id": submit.submission_id,
            "answer": answer,
            "turn_id": turn or None,
            "quarantined": isinstance(found, Submitted) and found.status is Status.QUARANTINED,
        }
    )


def cancelled_of(session_id: str, submission_id: str, found: CancelAnswer) -> Cancelled:
    """What a cancel came to."""
    return Cancelled.model_validate(
        {
            "session_id": session_id,
            "submission_id": submission_id,
            "answer": _CANCELS[found.word],
            "turn_id": found.turn or None,
            "ending": found.ending,
            "quarantined": found.quarantined,
        }
    )


def outcome_of(session_id: str, state: SubmissionState, record: TurnRecord | None) -> Outcome:
    """How an ended submission ended; `record` is its turn's, if there was one and it is kept."""
    assert state.ending is not None, "only an ended submission has an outcome"
    outcome = Outcome(
        session_id=session_id,
        submission_id=state.submission_id,
        ending=state.ending,
        turn_id=state.turn or None,
        started_at_ms=state.accepted_ms,
        finished_at_ms=state.ended_ms,
    )
    if record is None or state.submission_id not in record.submission_ids:
        return outcome
    return outcome.model_copy(
        update={
            "reply_to": record.reply_to,
            "text": record.text,
            "stop": record.stop,
            "output": record.output,
            "error": record.error,
            "usage": record.usage,
            "steps": record.steps,
            "tool_calls": record.tool_calls,
            "takeovers": record.takeovers,
            "started_at_ms": record.started_at_ms,
            "finished_at_ms": record.finished_at_ms,
        }
    )


def not_completed(outcome: Outcome) -> NotCompleted:
    """The error for an outcome of another ending than completed."""
    return _NOT_COMPLETED[outcome.ending](outcome)


def info_of(snapshot: Snapshot, now_ms: int) -> SessionInfo:
    """A session as it stands, from what lies in Redis."""
    head = snapshot.head
    status = Status.READY if has_stepped_aside(head, now_ms) else head.status
    checkpoint = checkpoint_of(snapshot)
    usage = checkpoint.stats.usage
    if checkpoint.execution is not None:
        usage = usage + checkpoint.execution.usage
    return SessionInfo(
        session_id=snapshot.session_id,
        agent=head.agent,
        queue=queue_of(head.route),
        status=shown_status(status),
        tenant=head.tenant or None,
        worker=holder_of(snapshot) or None,
        model=checkpoint.model or None,
        turn_id=head.turn or None,
        seq=head.seq,
        first_seq=head.first_seq,
        revision=head.rev,
        fence=head.fence,
        inbox=sum(1 for w in snapshot.work.waiting if w.kind != "answer" and not w.turn),
        waiting=", ".join(_waited_for(snapshot)) or None,
        stopped=quarantined_of(snapshot).why if is_quarantined(snapshot) else None,
        usage=usage,
        context=json.loads(head.context or "{}"),
        metadata=checkpoint.metadata,
        parent=head.parent or None,
        created_at_ms=head.created_ms,
        updated_at_ms=head.at_ms,
    )


def shown_status(status: Status) -> SessionStatus:
    """A status as people read it."""
    return _SHOWN[status]


def has_stepped_aside(head: Head, now_ms: int) -> bool:
    """Whether it waits for a worker like the others, and is offered again soon: as many of its
    tenant, or of its queue, run as may."""
    not_before = int(head.raw.get("not_before") or 0)
    lately = bool(head.raw.get("deferred")) and not_before + LIMITED_MS >= now_ms
    return lately and head.status in (Status.READY, Status.IDLE, Status.PARKED)


def holder_of(snapshot: Snapshot) -> str:
    """The incarnation that holds the session, or ''."""
    return snapshot.owner.partition("|")[2].rpartition("|")[0]


def gap_after(cursor: int, first_seq: int, before: int | None = None) -> Gap | None:
    """The gap between what a follower has seen and the oldest event there is, if there is one.

    `before` is an event that the follower was given: what comes before it is missing at most.
    """
    last = (first_seq if before is None else min(first_seq, before)) - 1
    return Gap(seq=last, first=cursor + 1, last=last) if last > cursor else None


def _text_of(item: object, attribute: str) -> str:
    """An attribute that is valid text, or ''."""
    value = getattr(item, attribute, "")
    return value if isinstance(value, str) and value.isascii() else ""


def _waited_for(snapshot: Snapshot) -> Iterator[str]:
    """What the open turn waits for, or the messages of an idle session whose time has not come."""
    for wait in snapshot.work.waits:
        until = f" until {shown_time(wait.deadline_ms)}" if wait.deadline_ms else ""
        yield f"{wait.kind} {wait.wait_id}{until}"
    if snapshot.head.status is Status.IDLE and not snapshot.work.waits:
        due = (w for w in snapshot.work.waiting if w.due_ms and not w.turn)
        for waiting in sorted(due, key=lambda one: (one.due_ms, one.n))[:SHOWN_DUE]:
            yield f"submission {waiting.submission_id} until {shown_time(waiting.due_ms)}"
