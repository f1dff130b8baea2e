"""Turns that call no model: each takes an input and ends in one commit.

What cannot be carried out ends here as well, as failed with a warning, so that its submission
ends and the session goes on.
"""

from __future__ import annotations

from dataclasses import replace

from changeover_shared._checkpoint import Checkpoint
from changeover_shared._events import (
    Event,
    Failure,
    ModelChanged,
    SessionClosed,
    SessionResumeRequested,
    TurnFailed,
    Warned,
)
from changeover_shared._ops import CloseOp, ResumeSessionOp, RollbackOp, SetModelOp
from changeover_shared._results import TurnRecord
from changeover_shared._words import CommitKind, Ending, Next
from changeover_worker._turn.draft import Draft, Setup, Taken
from changeover_worker._turn.rolling_back import Past, rolled_back


def refuse(
    checkpoint: Checkpoint,
    ns: tuple[int, ...],
    submission_ids: tuple[str, ...],
    failure: Failure,
    *,
    reply_to: tuple[str, ...] = (),
    turn_id: str,
    now_ms: int,
) -> Draft:
    """Take an input that cannot be carried out, or several that were joined, and end them as
    failed."""
    record = _record(checkpoint, submission_ids, turn_id, now_ms, error=failure, reply_to=reply_to)
    events = _refusal(submission_ids, turn_id, failure)
    return _at_once(checkpoint, ns, record, events)


def set_model(
    checkpoint: Checkpoint,
    taken: Taken,
    op: SetModelOp,
    setup: Setup,
    turn_id: str,
    now_ms: int,
) -> Draft:
    """Use another of the app's models from the next turn on."""
    if op.model not in setup.models:
        failure = unknown_model(op.model)
        return refuse(
            checkpoint, (taken.n,), (taken.submission_id,), failure, turn_id=turn_id, now_ms=now_ms
        )
    changed = ModelChanged(
        model=op.model,
        previous=checkpoint.model,
        submission_id=taken.submission_id,
        turn_id=turn_id,
    )
    checkpoint = checkpoint.model_copy(update={"model": op.model})
    record = _record(checkpoint, (taken.submission_id,), turn_id, now_ms)
    return _at_once(checkpoint, (taken.n,), record, (changed,))


def roll_back(
    checkpoint: Checkpoint, taken: Taken, op: RollbackOp, past: Past, turn_id: str, now_ms: int
) -> Draft:
    """Take turns out of what the model is shown."""
    result = rolled_back(checkpoint, op.to, past)
    if isinstance(result, Failure):
        return refuse(
            checkpoint, (taken.n,), (taken.submission_id,), result, turn_id=turn_id, now_ms=now_ms
        )
    checkpoint, said = result
    said = said.model_copy(update={"submission_id": taken.submission_id, "turn_id": turn_id})
    record = _record(checkpoint, (taken.submission_id,), turn_id, now_ms)
    return _at_once(checkpoint, (taken.n,), record, (said,))


def close(checkpoint: Checkpoint, taken: Taken, op: CloseOp, turn_id: str, now_ms: int) -> Draft:
    """End the session with this turn."""
    closed = SessionClosed(reason=op.reason, submission_id=taken.submission_id, turn_id=turn_id)
    record = _record(checkpoint, (taken.submission_id,), turn_id, now_ms)
    return replace(_at_once(checkpoint, (taken.n,), record, (closed,)), next=Next.CLOSE)


def resume_session(
    checkpoint: Checkpoint, taken: Taken, op: ResumeSessionOp, turn_id: str, now_ms: int
) -> Draft:
    """Tell the context of another session."""
    if taken.target is None:
        failure = _unknown_session(op.target)
        return refuse(
            checkpoint, (taken.n,), (taken.submission_id,), failure, turn_id=turn_id, now_ms=now_ms
        )
    asked = SessionResumeRequested(
        target=op.target,
        context=dict(taken.target),
        submission_id=taken.submission_id,
        turn_id=turn_id,
    )
    record = _record(checkpoint, (taken.submission_id,), turn_id, now_ms)
    return _at_once(checkpoint, (taken.n,), record, (asked,))


def _at_once(
    checkpoint: Checkpoint, ns: tuple[int, ...], record: TurnRecord, events: tuple[Event, ...]
) -> Draft:
    return Draft(
        kind=CommitKind.START,
        turn=record.turn_id,
        checkpoint=checkpoint,
        progress=True,
        take=ns,
        end=record.ending,
        next=Next.AUTO,
        events=events,
        record=record,
    )


def _record(
    checkpoint: Checkpoint,
    submission_ids: tuple[str, ...],
    turn_id: str,
    now_ms: int,
    *,
    error: Failure | None = None,
    reply_to: tuple[str, ...] = (),
) -> TurnRecord:
    return TurnRecord(
        turn_id=turn_id,
        submission_ids=submission_ids,
        ending=Ending.FAILED if error else Ending.COMPLETED,
        reply_to=reply_to,
        error=error,
        model=checkpoint.model,
        started_at_ms=now_ms,
        finished_at_ms=now_ms,
    )


def _refusal(submission_ids: tuple[str, ...], turn_id: str, failure: Failure) -> tuple[Event, ...]:
    belongs = {"submission_id": submission_ids[0], "turn_id": turn_id}
    return (
        Warned(code=failure.kind, text=failure.message, **belongs),
        TurnFailed(submission_ids=submission_ids, error=failure, **belongs),
    )


def _unknown_session(target: str) -> Failure:
    return Failure(
        kind="unknown_session",
        message=f"there is no session {target!r}; nothing was asked of it",
    )


def unknown_model(model: str) -> Failure:
    """A model that the app does not register was asked for."""
    return Failure(
        kind="unknown_model",
        message=f"the app registers no model {model!r}; the session keeps the one that it has",
    )
