"""How a turn starts: one input is taken, in one commit.

A message opens the first model step, a compaction goes on to its summary. The other ops call no
model: they start and end in the same commit. So does a message that cannot run, so that its
submission ends and the session goes on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from changeover_shared._checkpoint import Checkpoint, Execution
from changeover_shared._events import (
    Event,
    Failure,
    ModelChanged,
    SessionClosed,
    SessionConfigured,
    SessionResumeRequested,
    TurnFailed,
    TurnStarted,
    Warned,
)
from changeover_shared._items import MAX_COUNT, UserMessage
from changeover_shared._ops import (
    CloseOp,
    CompactOp,
    MessageOp,
    ResumeSessionOp,
    RollbackOp,
    SetModelOp,
)
from changeover_shared._results import TurnRecord
from changeover_shared._words import CommitKind, Ending, Next
from changeover_worker._turn.draft import Draft, Setup, Taken
from changeover_worker._turn.ending import fail
from changeover_worker._turn.execution import open_step, stamp
from changeover_worker._turn.rolling_back import NO_PAST, Past, rolled_back


def start(
    checkpoint: Checkpoint,
    taken: Taken,
    setup: Setup,
    *,
    turn_id: str,
    step_id: str,
    first_item: int,
    now_ms: int,
    past: Past = NO_PAST,
) -> Draft:
    """Take one input. The session's very first commit says how it is configured.

    `first_item` is the number that the transcript's next item gets, `past` is for a rollback.
    """
    checkpoint, opening = settle_model(checkpoint, setup, turn_id)
    match taken.op:
        case MessageOp() if checkpoint.stats.turns >= MAX_COUNT:
            draft = refuse(
                checkpoint, taken.n, taken.submission_id, _FULL, turn_id=turn_id, now_ms=now_ms
            )
        case MessageOp() as op:
            draft = _start_message(
                checkpoint, taken, op, setup, turn_id, step_id, first_item, now_ms
            )
        case SetModelOp() as op:
            draft = _set_model(checkpoint, taken, op, setup, turn_id, now_ms)
        case CloseOp() as op:
            draft = _close(checkpoint, taken, op, turn_id, now_ms)
        case ResumeSessionOp() as op:
            draft = _resume_session(checkpoint, taken, op, turn_id, now_ms)
        case CompactOp():
            draft = _start_compacting(checkpoint, taken, turn_id, first_item, now_ms)
        case RollbackOp() as op:
            draft = _roll_back(checkpoint, taken, op, past, turn_id, now_ms)
    return draft.after(opening)


def refuse(
    checkpoint: Checkpoint,
    n: int,
    submission_id: str,
    failure: Failure,
    *,
    turn_id: str,
    now_ms: int,
) -> Draft:
    """Take an input that cannot be carried out, and end it as failed."""
    record = _record(checkpoint, submission_id, turn_id, now_ms, error=failure)
    events = _refusal(submission_id, turn_id, failure)
    return _at_once(checkpoint, n, record, events)


def settle_model(
    checkpoint: Checkpoint, setup: Setup, turn_id: str
) -> tuple[Checkpoint, tuple[Event, ...]]:
    """Make sure that the session's model is one of this app's; the first time, choose it."""
    saved = checkpoint.model
    if saved is not None and saved in setup.models:
        return checkpoint, ()
    settled = checkpoint.model_copy(update={"model": setup.model})
    if saved is None:
        said: Event = SessionConfigured(
            agent=setup.agent, queue=setup.queue, model=setup.model or None
        )
    else:
        said = ModelChanged(
            model=setup.model, previous=saved, reason="unregistered", turn_id=turn_id
        )
    return settled, (said,)


def _start_message(
    checkpoint: Checkpoint,
    taken: Taken,
    op: MessageOp,
    setup: Setup,
    turn_id: str,
    step_id: str,
    first_item: int,
    now_ms: int,
) -> Draft:
    execution = Execution(
        turn_id=turn_id,
        submission_ids=(taken.submission_id,),
        started_at_ms=now_ms,
        first_item=first_item,
    )
    events: list[Event] = [TurnStarted(submission_ids=execution.submission_ids, **stamp(execution))]
    if op.metadata is not None:
        checkpoint = checkpoint.model_copy(update={"metadata": op.metadata})
    known = op.model is None or op.model in setup.models
    if known and op.model not in (None, checkpoint.model):
        # No submission id: a message ends with its turn, not with a change of the model.
        changed = ModelChanged(model=str(op.model), previous=checkpoint.model, turn_id=turn_id)
        events.insert(0, changed)
        checkpoint = checkpoint.model_copy(update={"model": op.model})
    said = heard(op, taken.submission_id)
    if known and setup.asks:
        execution, began = open_step(
            execution, step_id=step_id, model=str(checkpoint.model), now_ms=now_ms
        )
        events.append(began)
    draft = Draft(
        kind=CommitKind.START,
        turn=turn_id,
        checkpoint=checkpoint.model_copy(update={"execution": execution}),
        take=(taken.n,),
        items=(said,),
        events=tuple(events),
    )
    return draft if known else fail_at_start(draft, _unknown_model(str(op.model)), now_ms=now_ms)


def heard(op: MessageOp, submission_id: str) -> UserMessage:
    """A message as the transcript keeps it."""
    return UserMessage(
        text=op.text, attachments=op.attachments, author=op.author, submission_id=submission_id
    )


def fail_at_start(draft: Draft, failure: Failure, *, now_ms: int) -> Draft:
    """The same start, ended as failed in the same commit."""
    ended = fail(draft.checkpoint, failure, now_ms=now_ms, events=draft.events)
    return replace(
        ended, kind=CommitKind.START, take=draft.take, items=(*draft.items, *ended.items)
    )


def _set_model(
    checkpoint: Checkpoint,
    taken: Taken,
    op: SetModelOp,
    setup: Setup,
    turn_id: str,
    now_ms: int,
) -> Draft:
    if op.model not in setup.models:
        failure = _unknown_model(op.model)
        return refuse(
            checkpoint, taken.n, taken.submission_id, failure, turn_id=turn_id, now_ms=now_ms
        )
    changed = ModelChanged(
        model=op.model,
        previous=checkpoint.model,
        submission_id=taken.submission_id,
        turn_id=turn_id,
    )
    checkpoint = checkpoint.model_copy(update={"model": op.model})
    record = _record(checkpoint, taken.submission_id, turn_id, now_ms)
    return _at_once(checkpoint, taken.n, record, (changed,))


def _start_compacting(
    checkpoint: Checkpoint, taken: Taken, turn_id: str, first_item: int, now_ms: int
) -> Draft:
    execution = Execution(
        turn_id=turn_id,
        submission_ids=(taken.submission_id,),
        started_at_ms=now_ms,
        first_item=first_item,
        op="compact",
    )
    began = TurnStarted(submission_ids=execution.submission_ids, **stamp(execution))
    return Draft(
        kind=CommitKind.START,
        turn=turn_id,
        checkpoint=checkpoint.model_copy(update={"execution": execution}),
        take=(taken.n,),
        events=(began,),
    )


def _roll_back(
    checkpoint: Checkpoint, taken: Taken, op: RollbackOp, past: Past, turn_id: str, now_ms: int
) -> Draft:
    result = rolled_back(checkpoint, op.to, past)
    if isinstance(result, Failure):
        return refuse(
            checkpoint, taken.n, taken.submission_id, result, turn_id=turn_id, now_ms=now_ms
        )
    checkpoint, said = result
    said = said.model_copy(update={"submission_id": taken.submission_id, "turn_id": turn_id})
    record = _record(checkpoint, taken.submission_id, turn_id, now_ms)
    return _at_once(checkpoint, taken.n, record, (said,))


def _close(checkpoint: Checkpoint, taken: Taken, op: CloseOp, turn_id: str, now_ms: int) -> Draft:
    closed = SessionClosed(reason=op.reason, submission_id=taken.submission_id, turn_id=turn_id)
    record = _record(checkpoint, taken.submission_id, turn_id, now_ms)
    return replace(_at_once(checkpoint, taken.n, record, (closed,)), next=Next.CLOSE)


def _resume_session(
    checkpoint: Checkpoint, taken: Taken, op: ResumeSessionOp, turn_id: str, now_ms: int
) -> Draft:
    if taken.target is None:
        failure = _unknown_session(op.target)
        return refuse(
            checkpoint, taken.n, taken.submission_id, failure, turn_id=turn_id, now_ms=now_ms
        )
    asked = SessionResumeRequested(
        target=op.target,
        context=dict(taken.target),
        submission_id=taken.submission_id,
        turn_id=turn_id,
    )
    record = _record(checkpoint, taken.submission_id, turn_id, now_ms)
    return _at_once(checkpoint, taken.n, record, (asked,))


def _at_once(
    checkpoint: Checkpoint, n: int, record: TurnRecord, events: tuple[Event, ...]
) -> Draft:
    return Draft(
        kind=CommitKind.START,
        turn=record.turn_id,
        checkpoint=checkpoint,
        progress=True,
        take=(n,),
        end=record.ending,
        next=Next.AUTO,
        events=events,
        record=record,
    )


def _record(
    checkpoint: Checkpoint,
    submission_id: str,
    turn_id: str,
    now_ms: int,
    *,
    error: Failure | None = None,
) -> TurnRecord:
    return TurnRecord(
        turn_id=turn_id,
        submission_ids=(submission_id,),
        ending=Ending.FAILED if error else Ending.COMPLETED,
        error=error,
        model=checkpoint.model,
        started_at_ms=now_ms,
        finished_at_ms=now_ms,
    )


def _refusal(submission_id: str, turn_id: str, failure: Failure) -> tuple[Event, ...]:
    belongs = {"submission_id": submission_id, "turn_id": turn_id}
    return (
        Warned(code=failure.kind, text=failure.message, **belongs),
        TurnFailed(submission_ids=(submission_id,), error=failure, **belongs),
    )


_FULL: Final = Failure(
    kind="counters_full",
    message="the session's statistics cannot count another turn; go on in a new session",
)


def _unknown_session(target: str) -> Failure:
    return Failure(
        kind="unknown_session",
        message=f"there is no session {target!r}; nothing was asked of it",
    )


def _unknown_model(model: str) -> Failure:
    return Failure(
        kind="unknown_model",
        message=f"the app registers no model {model!r}; the session keeps the one that it has",
    )
