"""How a turn starts: one input is taken, or several that were joined, in one commit.

A message opens the first model step, a compaction goes on to its summary. The other ops call no
model: they start and end in the same commit (`at_once.py`). So does a message that cannot run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Final

from changeover_shared._budget import Budget
from changeover_shared._checkpoint import Checkpoint, Execution
from changeover_shared._events import (
    Event,
    Failure,
    ModelChanged,
    SessionConfigured,
    TurnStarted,
)
from changeover_shared._items import MAX_COUNT
from changeover_shared._ops import (
    CloseOp,
    CompactOp,
    MessageOp,
    ResumeSessionOp,
    RollbackOp,
    SetModelOp,
)
from changeover_shared._words import CommitKind
from changeover_worker._turn.at_once import (
    close,
    refuse,
    resume_session,
    roll_back,
    set_model,
    unknown_model,
)
from changeover_worker._turn.draft import Draft, Setup, Taken
from changeover_worker._turn.ending import fail
from changeover_worker._turn.execution import open_step, stamp
from changeover_worker._turn.joining import channels, merged, settled_by, user_message
from changeover_worker._turn.rolling_back import NO_PAST, Past


def start(
    checkpoint: Checkpoint,
    taken: Taken,
    setup: Setup,
    *,
    more: Sequence[Taken] = (),
    turn_id: str,
    step_id: str,
    first_item: int,
    now_ms: int,
    past: Past = NO_PAST,
) -> Draft:
    """Take one input, and with a message those that it makes a turn with: `more`, all of which may
    join. The session's very first commit says how it is configured.

    `first_item` is the number that the transcript's next item gets, `past` is for a rollback.
    """
    checkpoint, opening = settle_model(checkpoint, setup, turn_id)
    match taken.op:
        case MessageOp() | CompactOp() if checkpoint.stats.turns >= MAX_COUNT:
            draft = refuse(
                checkpoint,
                (taken.n,),
                (taken.submission_id,),
                _FULL,
                reply_to=_channels_of(taken),
                turn_id=turn_id,
                now_ms=now_ms,
            )
        case MessageOp() as op:
            joined = [(one, one.op) for one in more if isinstance(one.op, MessageOp)]
            inputs = [(taken, op), *joined]
            draft = _start_message(checkpoint, inputs, setup, turn_id, step_id, first_item, now_ms)
        case SetModelOp() as op:
            draft = set_model(checkpoint, taken, op, setup, turn_id, now_ms)
        case CloseOp() as op:
            draft = close(checkpoint, taken, op, turn_id, now_ms)
        case ResumeSessionOp() as op:
            draft = resume_session(checkpoint, taken, op, turn_id, now_ms)
        case CompactOp():
            draft = _start_compacting(checkpoint, taken, turn_id, first_item, now_ms)
        case RollbackOp() as op:
            draft = roll_back(checkpoint, taken, op, past, turn_id, now_ms)
    return draft.after(opening)


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
    inputs: Sequence[tuple[Taken, MessageOp]],
    setup: Setup,
    turn_id: str,
    step_id: str,
    first_item: int,
    now_ms: int,
) -> Draft:
    first, *more = (taken.submission_id for taken, _ in inputs)
    said = tuple(user_message(op, taken.submission_id) for taken, op in inputs)
    execution = Execution(
        turn_id=turn_id,
        submission_ids=(first, *more),
        started_at_ms=now_ms,
        first_item=first_item,
        budget=_tightest(op.budget for _, op in inputs),
        reply_to=channels(said),
    )
    events: list[Event] = []
    known = all(op.model is None or op.model in setup.models for _, op in inputs)
    for _, op in inputs:
        settles = op if known else op.model_copy(update={"model": None})
        checkpoint, changed = settled_by(checkpoint, settles, turn_id)
        events += changed
    events += [
        TurnStarted(submission_ids=execution.submission_ids, **stamp(execution)),
        *merged(execution, more),
    ]
    if known and setup.asks:
        execution, began = open_step(
            execution, step_id=step_id, model=str(checkpoint.model), now_ms=now_ms
        )
        events.append(began)
    draft = Draft(
        kind=CommitKind.START,
        turn=turn_id,
        checkpoint=checkpoint.model_copy(update={"execution": execution}),
        take=tuple(taken.n for taken, _ in inputs),
        items=said,
        events=tuple(events),
    )
    if known:
        return draft
    unknown = unknown_model(str(inputs[0][1].model))
    return fail_at_start(draft, unknown, now_ms=now_ms)


def _tightest(budgets: Iterable[Budget | None]) -> Budget | None:
    """What all of them allow; None if none limits anything."""
    found = [budget for budget in budgets if budget is not None]
    return reduce(Budget.within, found) if found else None


def _channels_of(taken: Taken) -> tuple[str, ...]:
    op = taken.op
    return channels((user_message(op, taken.submission_id),)) if isinstance(op, MessageOp) else ()


def fail_at_start(draft: Draft, failure: Failure, *, now_ms: int) -> Draft:
    """The same start, ended as failed in the same commit."""
    ended = fail(draft.checkpoint, failure, now_ms=now_ms, events=draft.events)
    return replace(
        ended, kind=CommitKind.START, take=draft.take, items=(*draft.items, *ended.items)
    )


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


_FULL: Final = Failure(
    kind="counters_full",
    message="the session's statistics cannot count another turn; go on in a new session",
)
