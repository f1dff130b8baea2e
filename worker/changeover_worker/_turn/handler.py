"""A handler's turn, as pure functions: each is the draft of the commit that records one move.

    begun                      a step is about to run: from here on it may have run
    opened, answered, refused  the model is asked; it answered; it failed for good
    said, slept, recorded      a call has ended, its record is in the transcript
    steered                    what steers the turn is taken in
    parked                     a sleep that needs no worker
    finished                   the handler returned
    recovered                  what a successor does with the turn that it finds
    stopped                    the handler went another way than before: nobody goes on

The checkpoint holds no more than the running call; what has ended is in the transcript alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pydantic_core import to_json

from changeover_shared._checkpoint import Checkpoint, Execution, HandlerStep
from changeover_shared._events import (
    Event,
    Failure,
    Warned,
)
from changeover_shared._items import AnyItem, AssistantMessage, Json, StepRecord
from changeover_shared._words import CommitKind, Next, StepEnding
from changeover_worker._models.model import ModelResponse
from changeover_worker._turn import parking
from changeover_worker._turn.draft import Draft, Onward, Tail, Taken, ranges
from changeover_worker._turn.durable import ModelCall, SayCall, SleepCall, SteeringCall, StepCall
from changeover_worker._turn.ending import end_completed
from changeover_worker._turn.execution import (
    close_step,
    may_have_run,
    open_execution,
    open_step,
    spoken,
    stamp,
)
from changeover_worker._turn.joining import take_in
from changeover_worker._turn.replay import response_json
from changeover_worker._turn.steps import close_answered
from changeover_worker._turn.streamed import with_streamed

SLEEP: Final = "sleep"
"""The reason of the park, and the name of its wait."""


def begun(checkpoint: Checkpoint, call: StepCall) -> Draft:
    """A step is about to run, for the first time or once more."""
    execution = open_execution(checkpoint)
    before = execution.handler_step
    marker = HandlerStep(
        name=call.name, effect=call.effect, attempts=1 + (before.attempts if before else 0)
    )
    draft = _moved(checkpoint, execution.model_copy(update={"handler_step": marker}))
    span_ms = round(call.timeout.total_seconds() * 1000)
    return replace(draft, span_ms=span_ms * (1 + call.retries))


def opened(checkpoint: Checkpoint, onward: Onward, *, now_ms: int) -> Draft:
    """The model is about to be asked, under the step id of `onward`."""
    execution = open_execution(checkpoint)
    marker = HandlerStep(name=ModelCall.name, kind=ModelCall.kind)
    execution, began = open_step(
        execution.model_copy(update={"handler_step": marker}),
        step_id=str(onward.step_id),
        model=onward.model,
        now_ms=now_ms,
    )
    return _moved(checkpoint, execution, began)


def answered(
    checkpoint: Checkpoint, response: ModelResponse, tail: Tail, *, now_ms: int
) -> tuple[Draft, StepRecord]:
    """The model answered."""
    before = open_execution(checkpoint)
    execution, events = close_answered(before, response.message, response, tail)
    checkpoint = with_streamed(checkpoint, ranges(tail.seqs), now_ms)
    record = StepRecord(name=ModelCall.name, kind=ModelCall.kind, output=response_json(response))
    return _ended(checkpoint, execution, record, *events), record


def refused(checkpoint: Checkpoint, failure: Failure, tail: Tail) -> tuple[Draft, StepRecord]:
    """The model failed and is not asked again."""
    execution, ended = close_step(open_execution(checkpoint), StepEnding.FAILED, tail.usage)
    execution = execution.model_copy(update={"next_step": execution.next_step + 1, "retry": None})
    record = StepRecord(
        name=ModelCall.name,
        kind=ModelCall.kind,
        output=failure.model_dump(mode="json"),
        is_error=True,
    )
    return _ended(checkpoint, execution, record, *tail.events, *ended), record


def said(checkpoint: Checkpoint, call: SayCall) -> tuple[Draft, StepRecord]:
    """The handler said something: whoever follows reads it, the model as well."""
    execution = open_execution(checkpoint)
    record = StepRecord(
        name=call.name, kind=call.kind, output={"text": call.text, "phase": call.phase}
    )
    draft = _ended(checkpoint, execution, record, *spoken(execution, call.text, call.phase))
    message = AssistantMessage(text=call.text, phase=call.phase)
    return replace(draft, items=(message, record)), record


def steered(checkpoint: Checkpoint, steers: Sequence[Taken]) -> tuple[Draft, StepRecord]:
    """The turn takes in what steers it, which may be nothing."""
    found = take_in(checkpoint, open_execution(checkpoint), steers)
    said = [item.model_dump(mode="json") for item in found.items]
    record = StepRecord(name=SteeringCall.name, kind=SteeringCall.kind, output=said)
    draft = _ended(found.checkpoint, found.execution, record, *found.events)
    kind = CommitKind.TAKE if steers else CommitKind.STEP
    # The record is before what it tells: the messages that begin a turn end at its first record.
    items: tuple[AnyItem, ...] = (record, *found.items)
    return replace(draft, kind=kind, progress=False, take=found.take, items=items), record


def recorded(checkpoint: Checkpoint, record: StepRecord) -> Draft:
    """A step has ended."""
    return _ended(checkpoint, open_execution(checkpoint), record)


def parked(checkpoint: Checkpoint, until_ms: int) -> Draft:
    """A sleep begins, or goes on, that no worker waits for."""
    execution = open_execution(checkpoint)
    if SLEEP in execution.waits:
        return replace(_moved(checkpoint, execution), next=Next.PARK)
    marker = HandlerStep(name=SleepCall.name, kind=SleepCall.kind, until_ms=until_ms)
    execution = execution.model_copy(update={"handler_step": marker})
    return parking.parked(_moved(checkpoint, execution), SLEEP, until_ms)


def slept(checkpoint: Checkpoint) -> tuple[Draft, StepRecord]:
    """A sleep is over."""
    execution, events, closes = parking.resumed(open_execution(checkpoint), SLEEP)
    record = StepRecord(name=SleepCall.name, kind=SleepCall.kind)
    return replace(_ended(checkpoint, execution, record, *events), closes=closes), record


def finished(
    checkpoint: Checkpoint, value: Json, turn_items: Sequence[AnyItem], *, now_ms: int
) -> Draft:
    """The handler returned. `turn_items` is what the turn has written: an answer that was given
    already is not given again."""
    execution = open_execution(checkpoint)
    text = value if isinstance(value, str) else ""
    output = None if isinstance(value, str) else value
    shown = text or ("" if output is None else to_json(output).decode())
    events = () if _was_said(text, turn_items) else spoken(execution, text, "final_answer")
    answer = AssistantMessage(text=shown)
    items = (answer,) if shown.strip() and answer not in turn_items else ()
    return end_completed(
        checkpoint, execution, text=text, output=output, items=items, events=events, now_ms=now_ms
    )


def recovered(checkpoint: Checkpoint, *, takeover: bool) -> Draft | None:
    """What a new holder records before it runs the handler again; None for nothing.

    A step that may have run and must not run twice ends as unknown.
    """
    before = open_execution(checkpoint)
    update = {"takeovers": before.takeovers + takeover}
    execution, events = close_step(before.model_copy(update=update), StepEnding.INTERRUPTED)
    lost = may_have_run(execution)
    if lost:
        execution = execution.model_copy(update={"handler_step": None})
        text = f"step {lost[0].name!r} may or may not have run; it is not run again"
        events.append(Warned(code="step_unknown", text=text, **stamp(execution)))
    if execution == before:
        return None
    return replace(
        _moved(checkpoint, execution, *events, kind=CommitKind.RECOVER), items=tuple(lost)
    )


def _moved(
    checkpoint: Checkpoint,
    execution: Execution,
    *events: Event,
    kind: CommitKind = CommitKind.STEP,
) -> Draft:
    """A commit that is no progress yet."""
    changed = checkpoint.model_copy(update={"execution": execution})
    return Draft(kind, execution.turn_id, changed, events=events)


def _ended(
    checkpoint: Checkpoint, execution: Execution, record: StepRecord, *events: Event
) -> Draft:
    execution = execution.model_copy(update={"handler_step": None})
    return replace(_moved(checkpoint, execution, *events), progress=True, items=(record,))


def _was_said(text: str, turn_items: Sequence[AnyItem]) -> bool:
    return any(_answer(item) == text for item in turn_items)


def _answer(item: AnyItem) -> str | None:
    """What an item gave as an answer, in the journal as well."""
    match item:
        case AssistantMessage(text=text, phase="final_answer"):
            return text
        case StepRecord(kind="model", is_error=False, output={"message": dict() as message}):
            is_answer = message.get("phase") == "final_answer"
            return str(message.get("text")) if is_answer else None
        case _:
            return None
