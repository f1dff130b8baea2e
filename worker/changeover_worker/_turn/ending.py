"""How a turn ends: each function is the draft of the one commit that ends it.

From wherever a turn is cut, its open calls get error results and its whole groups join the
transcript, so no request ever goes to a model with an unanswered call. What an unfinished step
has said stays visible in the journal and never enters the transcript.
"""

from __future__ import annotations

from typing import Final

from changeover_shared._checkpoint import Checkpoint, Execution, Stats
from changeover_shared._events import (
    Event,
    Failure,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    Warned,
)
from changeover_shared._items import AssistantMessage, Item
from changeover_shared._results import TurnRecord
from changeover_shared._words import CommitKind, Ending, Next, StepEnding
from changeover_worker._turn.draft import NO_TAIL, Draft, Tail
from changeover_worker._turn.execution import (
    close_group,
    close_step,
    error_result,
    open_calls,
    open_execution,
    stamp,
    store_results,
)

UNKNOWN: Final = "execution interrupted; result unknown"


def complete(
    checkpoint: Checkpoint,
    message: AssistantMessage,
    *,
    now_ms: int,
    stop: str | None = None,
    events: tuple[Event, ...] = (),
) -> Draft:
    """The turn has its answer."""
    execution = open_execution(checkpoint).model_copy(update={"assistant": None})
    told = list(events)
    if not message.text.strip():
        text = "the model answered without any text"
        told.append(Warned(code="blank_answer", text=text, **stamp(execution)))
    told.append(
        TurnCompleted(
            submission_ids=execution.submission_ids,
            text=message.text,
            usage=execution.usage,
            stop=stop,
            **stamp(execution),
        )
    )
    record = _record(checkpoint, execution, Ending.COMPLETED, now_ms, text=message.text, stop=stop)
    return _end(checkpoint, execution, record, (message,), told)


def fail(
    checkpoint: Checkpoint,
    failure: Failure,
    *,
    now_ms: int,
    tail: Tail = NO_TAIL,
    events: tuple[Event, ...] = (),
) -> Draft:
    """The turn cannot go on; the session can."""
    execution, items, closing = _cut(
        open_execution(checkpoint), StepEnding.FAILED, f"{UNKNOWN}: {failure.message}", tail
    )
    ended = TurnFailed(submission_ids=execution.submission_ids, error=failure, **stamp(execution))
    record = _record(checkpoint, execution, Ending.FAILED, now_ms, error=failure)
    told = [*events, *tail.events, *closing, ended]
    return _end(checkpoint, execution, record, items, told)


def abort(
    checkpoint: Checkpoint,
    reason: str,
    *,
    now_ms: int,
    tail: Tail = NO_TAIL,
    unknown: str = "",
) -> Draft:
    """The turn was stopped. `unknown` is what its open calls are answered with."""
    execution, items, closing = _cut(
        open_execution(checkpoint),
        StepEnding.INTERRUPTED,
        unknown or f"{UNKNOWN}: {reason}",
        tail,
    )
    ended = TurnAborted(submission_ids=execution.submission_ids, reason=reason, **stamp(execution))
    record = _record(checkpoint, execution, Ending.ABORTED, now_ms)
    return _end(checkpoint, execution, record, items, [*tail.events, *closing, ended])


def _cut(
    execution: Execution, ending: StepEnding, unknown: str, tail: Tail
) -> tuple[Execution, tuple[Item, ...], list[Event]]:
    execution, step_events = close_step(execution, ending, tail.usage)
    results = tuple(error_result(c, unknown, unknown=True) for c in open_calls(execution))
    execution, call_events = store_results(execution, results)
    execution, items = close_group(execution)
    return execution, items, [*step_events, *call_events]


def _end(
    checkpoint: Checkpoint,
    execution: Execution,
    record: TurnRecord,
    items: tuple[Item, ...],
    events: list[Event],
) -> Draft:
    update = {"execution": None, "stats": _counted(checkpoint.stats, execution, record)}
    return Draft(
        kind=CommitKind.END,
        turn=execution.turn_id,
        checkpoint=checkpoint.model_copy(update=update),
        progress=True,
        end=record.ending,
        next=Next.AUTO,
        items=items,
        events=tuple(events),
        record=record,
    )


def _record(
    checkpoint: Checkpoint,
    execution: Execution,
    ending: Ending,
    now_ms: int,
    *,
    text: str = "",
    stop: str | None = None,
    error: Failure | None = None,
) -> TurnRecord:
    return TurnRecord(
        turn_id=execution.turn_id,
        submission_ids=execution.submission_ids,
        ending=ending,
        text=text,
        stop=stop,
        error=error,
        usage=execution.usage,
        steps=execution.next_step,
        tool_calls=execution.tool_calls,
        failed_tool_calls=execution.failed_tool_calls,
        takeovers=execution.takeovers,
        model=checkpoint.model,
        first_item=execution.first_item,
        started_at_ms=execution.started_at_ms,
        finished_at_ms=max(now_ms, execution.started_at_ms),
    )


def _counted(stats: Stats, execution: Execution, record: TurnRecord) -> Stats:
    return Stats(
        turns=stats.turns + 1,
        failed_turns=stats.failed_turns + (record.ending is Ending.FAILED),
        aborted_turns=stats.aborted_turns + (record.ending is Ending.ABORTED),
        model_calls=stats.model_calls + execution.model_calls,
        tool_calls=stats.tool_calls + execution.tool_calls,
        failed_tool_calls=stats.failed_tool_calls + execution.failed_tool_calls,
        elapsed_ms=stats.elapsed_ms + record.finished_at_ms - record.started_at_ms,
        usage=stats.usage + execution.usage,
    )
