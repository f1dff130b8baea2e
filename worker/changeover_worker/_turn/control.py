"""Calls that end their turn: a terminal tool has returned, or a tool has stopped the turn.

Read from the checkpoint once every call of a group has its result, so that a successor decides as
the worker before would have, with or without the tools. The whole group joins the transcript
whichever of its calls decides.
"""

from __future__ import annotations

from changeover_shared._checkpoint import Checkpoint, PendingCall
from changeover_shared._events import Event, Failure
from changeover_shared._items import Json
from changeover_worker._turn.draft import Draft
from changeover_worker._turn.ending import end_completed, fail
from changeover_worker._turn.execution import close_group, open_execution, spoken


def ended_by_call(
    checkpoint: Checkpoint, *, now_ms: int, events: tuple[Event, ...]
) -> Draft | None:
    """The end of the turn, if one of its calls asks for it: the first in call order, whichever
    landed first. None if none does."""
    for call in open_execution(checkpoint).calls:
        if call.stop is not None:
            failure = Failure(kind=call.stop.kind, message=call.stop.message)
            return fail(checkpoint, failure, now_ms=now_ms, events=events)
        if _is_final(call):
            output = None if call.result is None else call.result.output
            return _complete(checkpoint, output, now_ms=now_ms, events=events)
    return None


def _is_final(call: PendingCall) -> bool:
    return call.terminal and call.result is not None and not call.result.is_error


def _complete(
    checkpoint: Checkpoint, output: Json, *, now_ms: int, events: tuple[Event, ...]
) -> Draft:
    execution = open_execution(checkpoint)
    beside = execution.assistant.text if execution.assistant else ""
    execution, items = close_group(execution)
    if isinstance(output, str):
        events = (*events, *spoken(execution, output, "final_answer"))
    return end_completed(
        checkpoint,
        execution,
        text=output if isinstance(output, str) else beside,
        output=output,
        items=items,
        events=events,
        now_ms=now_ms,
    )
