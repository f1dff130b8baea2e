"""A session that its own worker finds broken: stopped at once, until an operator acts."""

from __future__ import annotations

from changeover_shared._checkpoint import Checkpoint
from changeover_shared._events import SessionQuarantined
from changeover_shared._words import CommitKind, Next
from changeover_worker._turn.draft import Draft
from changeover_worker._turn.execution import open_execution, stamp


def quarantined(checkpoint: Checkpoint, error: str, attempts: int) -> Draft:
    """Nobody goes on with the session for now; its turn stays open."""
    execution = open_execution(checkpoint)
    event = SessionQuarantined(attempts=attempts, cause="worker", error=error, **stamp(execution))
    return Draft(
        CommitKind.RECOVER,
        execution.turn_id,
        checkpoint,
        next=Next.QUARANTINE,
        events=(event,),
    )
