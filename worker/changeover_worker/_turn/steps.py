"""The turn machine: ready -> model -> tools -> model ... -> end, as pure functions.

Each function is one arrow. It takes the checkpoint before it and what happened, and returns the
`Draft` of the one commit that records both. No I/O and no clock: times and ids are passed in.

    start               (start.py)    takes one input; a message opens the first model step
    answered            here          the model's answer: pending calls, or the end of the turn
    landed              here          tool results; the last of a group opens the next step,
                                      or ends the turn if a call says so (control.py)
    recover             (recovery.py) what a successor does with the turn that it finds
    fail, abort         (ending.py)   from anywhere, the turn ends and the context stays valid
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Final

from changeover_shared._checkpoint import Checkpoint, Execution, PendingCall
from changeover_shared._events import AssistantSaid, Event, ToolCallBegin, Warned
from changeover_shared._items import AssistantMessage, Item, ToolResult
from changeover_shared._words import CommitKind, Effect, StepEnding
from changeover_worker._models.contents import is_whole
from changeover_worker._models.model import ModelResponse
from changeover_worker._turn.budget import used_up
from changeover_worker._turn.control import ended_by_call
from changeover_worker._turn.draft import Draft, Onward, Tail, ranges
from changeover_worker._turn.ending import complete, fail
from changeover_worker._turn.execution import (
    close_group,
    close_step,
    error_result,
    open_calls,
    open_execution,
    stamp,
    store_results,
)
from changeover_worker._turn.joining import next_step
from changeover_worker._turn.streamed import with_streamed

CUT_OFF: Final = "the call was cut off by the model's length limit and was not run"


def answered(
    checkpoint: Checkpoint,
    response: ModelResponse,
    tail: Tail,
    *,
    effect_of: Callable[[str], Effect],
    terminal: Container[str] = (),
    shown: Sequence[Item] = (),
    onward: Onward,
    now_ms: int,
) -> Draft:
    """The model step ended. With calls, they are pending from this commit on; without, the
    turn ends with it.

    `terminal` are the names of the tools whose result ends the turn. `shown` is what the model
    was asked with: a call whose id stands there gets another one.
    """
    before = open_execution(checkpoint)
    # Behind a summary of its own beginning a turn's earlier ids are not shown any more.
    unseen = 0 < before.first_item < checkpoint.context_from
    suffix = f"_s{before.next_step}" if unseen else ""
    message = _with_distinct_ids(response.message, shown, suffix)
    execution, events = close_answered(before, message, response, tail)
    checkpoint = with_streamed(checkpoint, ranges(tail.seqs), now_ms)
    if not message.tool_calls:
        return complete(
            checkpoint.model_copy(update={"execution": execution}),
            message,
            now_ms=now_ms,
            stop=response.stop,
            events=tuple(events),
        )
    calls = _pending(message, effect_of, terminal)
    execution = execution.model_copy(
        update={"phase": "tools", "assistant": message, "calls": calls}
    )
    step_id = before.step.step_id if before.step else None
    events += [_begin(call, execution, step_id) for call in calls]
    cut = response.stop == "length"
    refused = tuple(error_result(c, CUT_OFF) for c in calls if cut and not is_whole(c.arguments))
    execution, ends = store_results(execution, refused)
    return advance(
        checkpoint, execution, (*events, *ends), onward=onward, kind=CommitKind.STEP, now_ms=now_ms
    )


def landed(
    checkpoint: Checkpoint, results: tuple[ToolResult, ...], *, onward: Onward, now_ms: int
) -> Draft:
    """Tool calls ended. Their results rest in the checkpoint until the whole group has ended."""
    execution, events = store_results(open_execution(checkpoint), results)
    return advance(
        checkpoint,
        execution,
        tuple(events),
        onward=onward,
        kind=CommitKind.RESULT,
        now_ms=now_ms,
    )


def advance(
    checkpoint: Checkpoint,
    execution: Execution,
    events: tuple[Event, ...],
    *,
    onward: Onward,
    kind: CommitKind,
    now_ms: int,
) -> Draft:
    """Record `execution`; if none of its calls is open, its group joins the transcript and the
    next model step begins in the same commit, with the steers that wait, unless one of the calls
    ends the turn."""
    progress = kind in (CommitKind.STEP, CommitKind.RESULT)
    changed = checkpoint.model_copy(update={"execution": execution})
    if open_calls(execution):
        return Draft(kind, execution.turn_id, changed, progress=progress, events=events)
    ended = ended_by_call(changed, now_ms=now_ms, events=events)
    if ended is not None:
        interim = Draft(kind, execution.turn_id, changed, progress=progress, events=events)
        return replace(ended, interim=interim)
    over = used_up(execution, onward.limits)
    if over is not None:
        return fail(changed, over, now_ms=now_ms, events=events)
    closed, items = close_group(execution)
    closed = closed.model_copy(update={"phase": "model"})
    begun = next_step(checkpoint, closed, onward, now_ms=now_ms)
    draft = Draft(
        kind,
        execution.turn_id,
        begun.checkpoint.model_copy(update={"execution": begun.execution}),
        progress=progress,
        take=begun.take,
        items=(*items, *begun.items),
        events=(*events, *begun.events),
    )
    if not begun.take:
        return draft
    alone = onward.taking(())
    without = advance(checkpoint, execution, events, onward=alone, kind=kind, now_ms=now_ms)
    return replace(draft, untaken=without)


def close_answered(
    execution: Execution, message: AssistantMessage, response: ModelResponse, tail: Tail
) -> tuple[Execution, list[Event]]:
    """End the model step in flight with its answer, which counts as `message`."""
    step_id = execution.step.step_id if execution.step else None
    events: list[Event] = [*tail.events]
    if message.text:
        events.append(
            AssistantSaid(phase=message.phase, text=message.text, **stamp(execution, step_id))
        )
    execution, ended = close_step(
        execution, StepEnding.COMPLETED, response.usage, ranges(tail.seqs)
    )
    events += [*ended, *_warnings_of(response, execution, step_id)]
    return execution.model_copy(update={"next_step": execution.next_step + 1}), events


def _warnings_of(response: ModelResponse, execution: Execution, step_id: str | None) -> list[Event]:
    """What people should know of an answer that is taken as it is."""
    texts: dict[str, str] = {}
    if response.stop == "length":
        texts["length"] = "the model's answer was cut off by its length limit"
    if response.served_by is not None:
        texts["model_fallback"] = (
            f"{response.served_by} answered instead of the model that was asked first"
        )
    return [
        Warned(code=code, text=text, **stamp(execution, step_id)) for code, text in texts.items()
    ]


def _pending(
    message: AssistantMessage, effect_of: Callable[[str], Effect], terminal: Container[str]
) -> tuple[PendingCall, ...]:
    return tuple(
        PendingCall(
            call_id=call.call_id,
            name=call.name,
            arguments=call.arguments,
            effect=effect_of(call.name),
            attempts=1,
            terminal=call.name in terminal,
        )
        for call in message.tool_calls
    )


def _begin(call: PendingCall, execution: Execution, step_id: str | None) -> ToolCallBegin:
    return ToolCallBegin(
        call_id=call.call_id,
        name=call.name,
        arguments=call.arguments,
        effect=call.effect,
        **stamp(execution, step_id),
    )


def _with_distinct_ids(
    message: AssistantMessage, shown: Sequence[Item], suffix: str
) -> AssistantMessage:
    """Some servers leave call ids out or repeat them; results are matched by them."""
    if not message.tool_calls:
        return message
    earlier = (item for item in shown if isinstance(item, AssistantMessage))
    used = {call.call_id for item in earlier for call in item.tool_calls}
    renamed = []
    for k, call in enumerate(message.tool_calls):
        call_id = _unused((call.call_id or f"call_{k}") + suffix, used)
        used.add(call_id)
        renamed.append(call.model_copy(update={"call_id": call_id}))
    return message.model_copy(update={"tool_calls": tuple(renamed)})


def _unused(wanted: str, used: set[str]) -> str:
    numbers = itertools.count(1)
    call_id = wanted
    while call_id in used:
        call_id = f"{wanted}_{next(numbers)}"
    return call_id
