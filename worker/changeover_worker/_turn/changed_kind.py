"""A turn that an agent began and a handler of the same name goes on with, or the other way round:
a deploy has made the one into the other. Neither knows what the other left open, so that is closed
first: nothing that has run is forgotten, and nothing is waited for any more.
"""

from __future__ import annotations

from changeover_shared._checkpoint import Checkpoint, Execution
from changeover_shared._events import Warned
from changeover_shared._items import AnyItem
from changeover_shared._words import CommitKind, StepEnding
from changeover_worker._turn.draft import Draft
from changeover_worker._turn.ending import UNKNOWN
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
from changeover_worker._turn.handler import SLEEP
from changeover_worker._turn.parking import resumed
from changeover_worker._turn.retry import RETRY


def taken_up(checkpoint: Checkpoint, *, by_handler: bool, takeover: bool) -> Draft | None:
    """Close what the other kind has left open; None if this turn has nothing of it."""
    before = open_execution(checkpoint)
    if not (_agents(before) if by_handler else _handlers(before)):
        return None
    execution = before.model_copy(update={"takeovers": before.takeovers + takeover})
    execution, events = close_step(execution, StepEnding.INTERRUPTED)
    lost = tuple(error_result(call, UNKNOWN, unknown=True) for call in open_calls(execution))
    execution, ends = store_results(execution, lost)
    execution, items = close_group(execution)
    written: tuple[AnyItem, ...] = (*items, *may_have_run(execution))
    execution, awake, slept = resumed(execution, SLEEP)
    execution, asked, retried = resumed(execution, RETRY)
    now, then = ("a handler", "an agent") if by_handler else ("an agent", "a handler")
    text = f"{then} began the turn, {now} of the same name goes on with it"
    warned = Warned(code="kind_changed", text=text, **stamp(execution))
    update = {"phase": "model", "retry": None, "handler_step": None}
    return Draft(
        CommitKind.RECOVER,
        execution.turn_id,
        checkpoint.model_copy(update={"execution": execution.model_copy(update=update)}),
        items=written,
        events=(*events, *ends, *awake, *asked, warned),
        closes=(*slept, *retried),
    )


def _agents(execution: Execution) -> bool:
    asked = execution.step is not None or execution.retry is not None
    return execution.assistant is not None or (asked and execution.handler_step is None)


def _handlers(execution: Execution) -> bool:
    return execution.handler_step is not None
