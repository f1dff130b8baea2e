"""How a turn begins to wait without a worker, and how it goes on."""

from __future__ import annotations

from dataclasses import replace

from changeover_shared._checkpoint import Execution
from changeover_shared._events import Event, TurnParked, TurnResumed
from changeover_shared._store.records import NewWait
from changeover_shared._words import Next
from changeover_worker._turn.draft import Draft
from changeover_worker._turn.execution import open_execution, stamp


def parked(draft: Draft, reason: str, until_ms: int) -> Draft:
    """The same commit, after which its turn waits until a time; the wait is named `reason`."""
    execution = open_execution(draft.checkpoint)
    execution = execution.model_copy(update={"waits": (*execution.waits, reason)})
    said = TurnParked(reason=reason, until_ms=until_ms, **stamp(execution))
    return replace(
        draft,
        checkpoint=draft.checkpoint.model_copy(update={"execution": execution}),
        next=Next.PARK,
        events=(*draft.events, said),
        waits=(NewWait(reason, "timer", until_ms),),
    )


def resumed(
    execution: Execution, *reasons: str
) -> tuple[Execution, tuple[Event, ...], tuple[str, ...]]:
    """The turn without its waits for `reasons`, the events that say so, and the waits to close;
    a turn that has not parked for any of them stays as it is."""
    over = tuple(wait for wait in execution.waits if wait in reasons)
    if not over:
        return execution, (), ()
    left = tuple(wait for wait in execution.waits if wait not in over)
    execution = execution.model_copy(update={"waits": left})
    return execution, tuple(TurnResumed(reason=wait, **stamp(execution)) for wait in over), over
