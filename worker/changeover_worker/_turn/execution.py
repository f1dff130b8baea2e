"""The small moves inside an open turn: steps open and close, calls get results, groups join."""

from __future__ import annotations

from typing import Any, Final

from changeover_shared._checkpoint import ActiveStep, Checkpoint, Execution, PendingCall
from changeover_shared._events import (
    AssistantSaid,
    Delta,
    Event,
    StepCompleted,
    StepStarted,
    ToolCallEnd,
)
from changeover_shared._items import Item, Phase, StepRecord, ToolResult, Usage
from changeover_shared._words import Effect, StepEnding

NO_USAGE: Final = Usage()


def open_execution(checkpoint: Checkpoint) -> Execution:
    """The turn that is open; calling it without one is a mistake of this package."""
    if checkpoint.execution is None:
        raise RuntimeError(f"session {checkpoint.session_id!r} has no open turn")
    return checkpoint.execution


def stamp(execution: Execution, step_id: str | None = None) -> dict[str, Any]:
    """The fields that say which submission, turn and step an event belongs to."""
    return {
        "submission_id": execution.submission_ids[0],
        "turn_id": execution.turn_id,
        "step_id": step_id,
    }


def spoken(execution: Execution, text: str, phase: Phase) -> tuple[Event, ...]:
    """What is said outside a model step, in both forms: who prints what streams and who reads what
    was committed see it once."""
    if not text.strip():
        return ()
    belongs = stamp(execution)
    return (
        Delta(phase=phase, text=text, **belongs),
        AssistantSaid(phase=phase, text=text, **belongs),
    )


def open_step(
    execution: Execution, *, step_id: str, model: str, now_ms: int
) -> tuple[Execution, StepStarted]:
    """Begin the model step that is next, or ask the one in flight again under a new id."""
    index = execution.next_step
    step = ActiveStep(
        step_id=step_id, index=index, started_at_ms=max(now_ms, execution.started_at_ms)
    )
    changed = execution.model_copy(
        update={"phase": "model", "step": step, "model_calls": execution.model_calls + 1}
    )
    return changed, StepStarted(index=index, model=model, **stamp(execution, step_id))


def close_step(
    execution: Execution,
    ending: StepEnding,
    usage: Usage = NO_USAGE,
    removed: tuple[tuple[int, int], ...] = (),
) -> tuple[Execution, list[Event]]:
    """End the model step in flight, if there is one. An answer ends the count of its failures."""
    step = execution.step
    if step is None:
        return execution, []
    retry = None if ending is StepEnding.COMPLETED else execution.retry
    changed = execution.model_copy(
        update={"step": None, "retry": retry, "usage": execution.usage + usage}
    )
    ended = StepCompleted(
        index=step.index,
        ending=ending,
        usage=usage,
        removed=removed,
        **stamp(execution, step.step_id),
    )
    return changed, [ended]


def store_results(
    execution: Execution, results: tuple[ToolResult, ...]
) -> tuple[Execution, list[Event]]:
    """Put results beside their pending calls, with the events that tell of them."""
    by_id = {result.call_id: result for result in results}
    calls = tuple(
        _with_result(call, by_id[call.call_id]) if call.call_id in by_id else call
        for call in execution.calls
    )
    changed = execution.model_copy(
        update={
            "calls": calls,
            "tool_calls": execution.tool_calls + len(results),
            "failed_tool_calls": execution.failed_tool_calls
            + sum(result.is_error for result in results),
        }
    )
    return changed, [
        ToolCallEnd(
            call_id=result.call_id,
            name=result.name,
            output=result.output,
            is_error=result.is_error,
            unknown=result.unknown,
            **stamp(execution),
        )
        for result in results
    ]


def _with_result(call: PendingCall, result: ToolResult) -> PendingCall:
    kept = result.model_copy(update={"stop": None})
    return call.model_copy(update={"result": kept, "stop": result.stop})


def open_calls(execution: Execution) -> tuple[PendingCall, ...]:
    """The pending calls that have no result yet."""
    return tuple(call for call in execution.calls if call.result is None)


def effects_ahead(checkpoint: Checkpoint) -> bool:
    """Whether what comes next may do something that must not be done again without a word."""
    execution = checkpoint.execution
    if execution is None:
        return False
    step = execution.handler_step
    in_step = step is not None and step.kind == "step" and step.effect is not Effect.PURE
    return in_step or any(call.effect is not Effect.PURE for call in open_calls(execution))


def may_have_run(execution: Execution) -> tuple[StepRecord, ...]:
    """The step of a handler that was being run and must not run twice, as its record."""
    step = execution.handler_step
    if step is None or step.kind != "step" or step.effect is not Effect.ONCE:
        return ()
    return (StepRecord(name=step.name, unknown=True),)


def close_group(execution: Execution) -> tuple[Execution, tuple[Item, ...]]:
    """Move the assistant's message and the results of all its calls, in call order, out of the
    checkpoint: what the transcript gets is whole pairs only."""
    if execution.assistant is None:
        return execution, ()
    results = [call.result for call in execution.calls if call.result is not None]
    changed = execution.model_copy(update={"assistant": None, "calls": ()})
    return changed, (execution.assistant, *results)


def error_result(call: PendingCall, text: str, *, unknown: bool = False) -> ToolResult:
    """A call's error result."""
    return ToolResult(
        call_id=call.call_id, name=call.name, output=text, is_error=True, unknown=unknown
    )
