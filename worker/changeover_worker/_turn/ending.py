"""How a turn ends: each function is the draft of the one commit that ends it.

From wherever a turn is cut, its open calls get error results and its whole groups join the
transcript, so no request ever goes to a model with an unanswered call. What an unfinished step
has said stays visible in the journal and never enters the transcript.

An end that the session's statistics cannot count raises `CounterOverflow` and changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from changeover_shared._checkpoint import Checkpoint, Execution, Stats
from changeover_shared._events import (
    Event,
    Failure,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    Warned,
)
from changeover_shared._items import MAX_COUNT, AnyItem, AssistantMessage, Json
from changeover_shared._results import TurnRecord
from changeover_shared._words import CommitKind, Ending, Next, StepEnding
from changeover_worker._turn.draft import NO_TAIL, Draft, Folded, Tail
from changeover_worker._turn.execution import (
    close_group,
    close_step,
    error_result,
    may_have_run,
    open_calls,
    open_execution,
    stamp,
    store_results,
)
from changeover_worker._turn.joining import channels

UNKNOWN: Final = "execution interrupted; result unknown"


class CounterOverflow(Exception):
    """A session's statistics cannot count any further. Nothing was changed."""

    def __init__(self, session_id: str, name: str) -> None:
        super().__init__(
            f"the statistics of session {session_id!r} exceed the supported range: {name} would "
            f"pass {MAX_COUNT}; nothing was changed; go on in a new session"
        )


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
    return end_completed(
        checkpoint,
        execution,
        text=message.text,
        stop=stop,
        items=(message,),
        events=tuple(told),
        now_ms=now_ms,
    )


def end_completed(
    checkpoint: Checkpoint,
    execution: Execution,
    *,
    text: str,
    output: Json = None,
    stop: str | None = None,
    items: tuple[AnyItem, ...],
    events: tuple[Event, ...],
    now_ms: int,
) -> Draft:
    """The turn has come to `text` or `output`; `items` and `events` are what shows it."""
    ended = TurnCompleted(
        submission_ids=execution.submission_ids,
        text=text,
        output=output,
        usage=execution.usage,
        stop=stop,
        **stamp(execution),
    )
    record = _record(
        checkpoint, execution, Ending.COMPLETED, now_ms, text=text, output=output, stop=stop
    )
    return _end(checkpoint, execution, record, items, [*events, ended])


def done(checkpoint: Checkpoint, *, now_ms: int, events: tuple[Event, ...] = ()) -> Draft:
    """The turn of an op that answers nobody has done what it was asked."""
    execution = open_execution(checkpoint)
    ended = TurnCompleted(
        submission_ids=execution.submission_ids, usage=execution.usage, **stamp(execution)
    )
    record = _record(checkpoint, execution, Ending.COMPLETED, now_ms)
    return _end(checkpoint, execution, record, (), [*events, ended])


def fail(
    checkpoint: Checkpoint,
    failure: Failure,
    *,
    now_ms: int,
    tail: Tail = NO_TAIL,
    events: tuple[Event, ...] = (),
) -> Draft:
    """The turn cannot go on; the session can."""
    execution = open_execution(checkpoint)
    now_ms = _not_before(execution, now_ms)
    execution, items, closing = _cut(
        execution, StepEnding.FAILED, f"{UNKNOWN}: {failure.message}", tail
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
    fold: tuple[Folded, ...] = (),
) -> Draft:
    """The turn was stopped. `unknown` is what its open calls are answered with, `fold` are
    waiting messages that end with it: their text joins the transcript behind the turn's own."""
    execution = open_execution(checkpoint)
    now_ms = _not_before(execution, now_ms)
    execution, items, closing = _cut(
        execution, StepEnding.INTERRUPTED, unknown or f"{UNKNOWN}: {reason}", tail
    )
    joined = (*execution.submission_ids, *(one.submission_id for one in fold))
    said = tuple(one.message for one in fold)
    execution = execution.model_copy(
        update={
            "submission_ids": joined,
            "reply_to": channels(said, before=execution.reply_to),
        }
    )
    ended = TurnAborted(submission_ids=joined, reason=reason, **stamp(execution))
    record = _record(checkpoint, execution, Ending.ABORTED, now_ms)
    draft = _end(checkpoint, execution, record, (*items, *said), [*tail.events, *closing, ended])
    return replace(draft, take=tuple(one.n for one in fold))


def _not_before(execution: Execution, now_ms: int) -> int:
    """The end of a turn: not before its beginning or that of its step, whatever a clock says."""
    begun = execution.step.started_at_ms if execution.step else execution.started_at_ms
    return max(now_ms, begun)


def _cut(
    execution: Execution, ending: StepEnding, unknown: str, tail: Tail
) -> tuple[Execution, tuple[AnyItem, ...], list[Event]]:
    execution, step_events = close_step(execution, ending, tail.usage)
    results = tuple(error_result(c, unknown, unknown=True) for c in open_calls(execution))
    execution, call_events = store_results(execution, results)
    execution, items = close_group(execution)
    return execution, (*items, *may_have_run(execution)), [*step_events, *call_events]


def _end(
    checkpoint: Checkpoint,
    execution: Execution,
    record: TurnRecord,
    items: tuple[AnyItem, ...],
    events: list[Event],
) -> Draft:
    update = {"execution": None, "stats": _counted(checkpoint, execution, record)}
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
    output: Json = None,
    stop: str | None = None,
    error: Failure | None = None,
) -> TurnRecord:
    return TurnRecord(
        turn_id=execution.turn_id,
        submission_ids=execution.submission_ids,
        ending=ending,
        reply_to=execution.reply_to,
        text=text,
        output=output,
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


def _counted(checkpoint: Checkpoint, execution: Execution, record: TurnRecord) -> Stats:
    """The statistics with one more turn. Raises `CounterOverflow`."""
    more = Stats(
        turns=1,
        failed_turns=int(record.ending is Ending.FAILED),
        aborted_turns=int(record.ending is Ending.ABORTED),
        model_calls=execution.model_calls,
        tool_calls=execution.tool_calls,
        failed_tool_calls=execution.failed_tool_calls,
        elapsed_ms=record.finished_at_ms - record.started_at_ms,
        usage=execution.usage,
    )
    return Stats(**_sums(checkpoint.session_id, checkpoint.stats.model_dump(), more.model_dump()))


def _sums(session_id: str, before: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    sums: dict[str, Any] = {}
    for name, count in before.items():
        if isinstance(count, dict):
            sums[name] = _sums(session_id, count, more[name])
            continue
        sums[name] = count + more[name]
        if sums[name] > MAX_COUNT:
            raise CounterOverflow(session_id, name)
    return sums
