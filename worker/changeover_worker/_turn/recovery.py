"""What a new holder does with the turn that it finds. Pure, and only ever run under the lease.

`DECISIONS` is the whole of it: what is found x how the agent wants takeovers -> what is done.
The commit that records a recovery is no progress: a session that kills its workers must not look
as if it moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal

from changeover_shared._checkpoint import Checkpoint, Execution, PendingCall
from changeover_shared._words import CommitKind, Effect, StepEnding
from changeover_worker._turn.draft import Draft, Folded, Onward
from changeover_worker._turn.ending import UNKNOWN, abort, complete
from changeover_worker._turn.execution import (
    close_step,
    error_result,
    open_calls,
    open_execution,
    store_results,
)
from changeover_worker._turn.retry import reopened
from changeover_worker._turn.steps import advance

OnTakeover = Literal["resume", "abort"]
"""What an agent wants to become of a turn whose worker died."""

RESTART: Final = "interrupted by restart"
UNKNOWN_AFTER_RESTART: Final = f"{UNKNOWN} after restart"


class Found(StrEnum):
    """Where the holder before stopped, as the checkpoint tells."""

    NOTHING = "nothing active"
    STEP = "model step in flight"
    PAUSE = "between two attempts at a model step"
    CALLS = "tool calls pending"
    BOUNDARY = "clean boundary"
    ANSWER = "completion"


class Action(StrEnum):
    """What its successor does."""

    SERVE = "serve the inbox"
    ASK_AGAIN = "journal the step as interrupted, ask the model again: same index, new step id"
    ASK_LATER = "wait until the next attempt is due, ask the model: same index, new step id"
    SETTLE_CALLS = (
        "keep stored results, run pure and idempotent calls, answer the others with "
        "`execution interrupted; result unknown after restart`, go on"
    )
    GO_ON = "begin the next step"
    FINISH = "end the turn with the answer that it has"
    ABORT = (
        "journal the step as interrupted, answer open calls with an error, abort the turn: "
        "its input stays in the transcript, its partial text does not"
    )


DECISIONS: Final[Mapping[tuple[Found, OnTakeover], Action]] = MappingProxyType(
    {
        (Found.NOTHING, "resume"): Action.SERVE,
        (Found.NOTHING, "abort"): Action.SERVE,
        (Found.STEP, "resume"): Action.ASK_AGAIN,
        (Found.STEP, "abort"): Action.ABORT,
        (Found.PAUSE, "resume"): Action.ASK_LATER,
        (Found.PAUSE, "abort"): Action.ASK_LATER,
        (Found.CALLS, "resume"): Action.SETTLE_CALLS,
        (Found.CALLS, "abort"): Action.ABORT,
        (Found.BOUNDARY, "resume"): Action.GO_ON,
        (Found.BOUNDARY, "abort"): Action.GO_ON,
        (Found.ANSWER, "resume"): Action.FINISH,
        (Found.ANSWER, "abort"): Action.FINISH,
    }
)


def found(execution: Execution | None) -> Found:
    """Read from a checkpoint where its turn stopped."""
    if execution is None:
        return Found.NOTHING
    if execution.step is not None:
        return Found.STEP
    if execution.retry is not None:
        return Found.PAUSE
    if execution.calls:
        return Found.CALLS
    return Found.ANSWER if execution.phase == "completion" else Found.BOUNDARY


def recover(
    checkpoint: Checkpoint,
    *,
    on_takeover: OnTakeover,
    onward: Onward,
    now_ms: int,
    takeover: bool,
    fold: tuple[Folded, ...] = (),
) -> Draft | None:
    """Decide the commit that goes on with an open turn; None when there is none. A pause between
    two attempts is over by then.

    `takeover`: the holder before did not hand it off, and this is counted. `fold`: what ends
    with the turn if it is aborted.
    """
    if checkpoint.execution is None:
        return None
    execution = checkpoint.execution
    if takeover:
        counted = execution.model_copy(update={"takeovers": execution.takeovers + 1})
        checkpoint = checkpoint.model_copy(update={"execution": counted})
    match DECISIONS[found(execution), on_takeover]:
        case Action.ABORT:
            return abort(
                checkpoint, RESTART, now_ms=now_ms, unknown=UNKNOWN_AFTER_RESTART, fold=fold
            )
        case Action.FINISH:
            return _finish(checkpoint, now_ms)
        case Action.ASK_LATER:
            return reopened(checkpoint, onward, now_ms=now_ms)
        case _:
            return _resume(checkpoint, onward, now_ms)


def aborts(execution: Execution, on_takeover: OnTakeover) -> bool:
    """Whether a new holder aborts this turn."""
    return DECISIONS[found(execution), on_takeover] is Action.ABORT


def unknown_calls(execution: Execution | None, on_takeover: OnTakeover) -> tuple[PendingCall, ...]:
    """The calls that may have run and are not run again by the holder that finds them."""
    calls = open_calls(execution) if execution is not None else ()
    if on_takeover == "abort":
        return calls
    return tuple(call for call in calls if call.effect is Effect.ONCE)


def _resume(checkpoint: Checkpoint, onward: Onward, now_ms: int) -> Draft:
    # The dead step's deltas are unknown here; they stay in the journal, under a step that ends
    # as interrupted, and never count.
    execution, step_events = close_step(open_execution(checkpoint), StepEnding.INTERRUPTED)
    lost = tuple(
        error_result(call, UNKNOWN_AFTER_RESTART, unknown=True)
        for call in unknown_calls(execution, "resume")
    )
    execution, call_events = store_results(execution, lost)
    execution = _with_another_attempt(execution)
    return advance(
        checkpoint,
        execution,
        (*step_events, *call_events),
        onward=onward,
        kind=CommitKind.RECOVER,
        now_ms=now_ms,
    )


def _with_another_attempt(execution: Execution) -> Execution:
    calls = tuple(
        call.model_copy(update={"attempts": max(1, call.attempts) + 1})
        if call.result is None
        else call
        for call in execution.calls
    )
    return execution.model_copy(update={"calls": calls})


def _finish(checkpoint: Checkpoint, now_ms: int) -> Draft:
    message = open_execution(checkpoint).assistant
    if message is None:
        return abort(checkpoint, RESTART, now_ms=now_ms)
    return complete(checkpoint, message, now_ms=now_ms)
