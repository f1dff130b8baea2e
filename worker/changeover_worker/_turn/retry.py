"""When a model step is asked again: its provider failed in a way that may pass.

The failed attempt is closed as `retrying`: what it cost counts, what it said does not. The next
one has the same index under an id of its own. In between the turn rests in its checkpoint, so
whoever holds the session then knows how many attempts have failed and when the next one is due.
A pause that is too long to be waited for by a worker is a park, and so is one behind which too
little of the time without progress is left: a provider that is silent is not poison.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from changeover_shared._checkpoint import Checkpoint, Retry
from changeover_shared._events import Failure
from changeover_shared._words import CommitKind, StepEnding
from changeover_worker._turn.draft import Draft, Onward, Tail
from changeover_worker._turn.execution import close_step, open_execution
from changeover_worker._turn.joining import next_step
from changeover_worker._turn.parking import parked, resumed

FIRST_PAUSE_MS: Final = 500
"""The longest pause after the first failure; each further failure doubles it."""
LONGEST_PAUSE_MS: Final = 30_000
"""Where the doubling ends."""
HELD_PAUSE_MS: Final = 5_000
"""The longest pause that a worker waits out; for a longer one the turn parks."""
LONGEST_WISH_MS: Final = 3_600_000
"""The longest wish of a provider to be left alone that is granted."""
MAX_ERROR: Final = 500
"""How many characters of a failure checkpoints and logs keep."""
RETRY: Final = "retry"
"""The reason of the park, and the name of its wait."""
LIMIT: Final = "limit"
"""Why a model was not asked, as the checkpoint has it."""


def retried(
    checkpoint: Checkpoint,
    failure: Failure,
    tail: Tail,
    *,
    retries: int,
    model: str,
    now_ms: int,
    jitter: Callable[[], float],
    may_hold: bool = True,
) -> Draft | None:
    """Close the failed model step, to be asked again later. None: it is not asked again, for the
    failure would not pass, all `retries` are used up, or the provider wants over an hour.

    `jitter` gives numbers from 0 to 1: that part of the pause is waited for. Without `may_hold` the
    turn parks however short it is: under a new grant the next attempt has its whole time.
    """
    execution = open_execution(checkpoint)
    attempt = 1 + (execution.retry.attempt if execution.retry else 0)
    wish_ms = failure.retry_after_ms or 0
    if not failure.retryable or attempt > retries or wish_ms > LONGEST_WISH_MS:
        return None
    pause_ms = max(math.ceil(_longest_pause_ms(attempt) * jitter()), wish_ms)
    execution, closing = close_step(execution, StepEnding.RETRYING, tail.usage)
    why = failure.message[:MAX_ERROR]
    retry = Retry(
        attempt=attempt,
        until_ms=now_ms + pause_ms,
        error=why,
        kind=failure.kind,
        model=model,
    )
    execution = execution.model_copy(update={"retry": retry})
    changed = checkpoint.model_copy(update={"execution": execution})
    events = (*tail.events, *closing)
    draft = Draft(CommitKind.RETRY, execution.turn_id, changed, events=events)
    holds = may_hold and pause_ms <= HELD_PAUSE_MS
    return draft if holds else parked(draft, RETRY, retry.until_ms)


def limited(checkpoint: Checkpoint, model: str, until_ms: int, *, parks: bool) -> Draft:
    """Have the model asked at a time, for it is at its limit: nothing was asked, so nothing counts.

    `parks`: nobody waits in a slot until then.
    """
    before = open_execution(checkpoint)
    execution, closing = close_step(before, StepEnding.RETRYING)
    failed = before.retry
    retry = Retry(
        attempt=failed.attempt if failed else 0,
        until_ms=until_ms,
        error=failed.error if failed else "",
        kind=LIMIT,
        model=model,
    )
    asked = execution.model_calls - (before.step is not None)
    execution = execution.model_copy(update={"retry": retry, "model_calls": asked})
    changed = checkpoint.model_copy(update={"execution": execution})
    draft = Draft(CommitKind.RETRY, execution.turn_id, changed, events=tuple(closing))
    return parked(draft, RETRY, until_ms) if parks else draft


def waited(checkpoint: Checkpoint) -> Draft:
    """A turn that has no model step goes on after its pause."""
    execution, events, closes = resumed(open_execution(checkpoint), RETRY)
    execution = execution.model_copy(update={"retry": None})
    changed = checkpoint.model_copy(update={"execution": execution})
    return Draft(CommitKind.RETRY, execution.turn_id, changed, events=events, closes=closes)


def reopened(checkpoint: Checkpoint, onward: Onward, *, now_ms: int) -> Draft:
    """Ask again: the same index under the step id of `onward`, with the steers that wait.

    The count of failed attempts stays until the step is answered.
    """
    execution, events, closes = resumed(open_execution(checkpoint), RETRY)
    begun = next_step(checkpoint, execution, onward, now_ms=now_ms)
    draft = Draft(
        kind=CommitKind.RETRY,
        turn=execution.turn_id,
        checkpoint=begun.checkpoint.model_copy(update={"execution": begun.execution}),
        take=begun.take,
        items=begun.items,
        events=(*events, *begun.events),
        closes=closes,
    )
    if not begun.take:
        return draft
    return replace(draft, untaken=reopened(checkpoint, onward.taking(()), now_ms=now_ms))


def _longest_pause_ms(attempt: int) -> int:
    doublings = min(attempt - 1, LONGEST_PAUSE_MS.bit_length())
    return min(FIRST_PAUSE_MS << doublings, LONGEST_PAUSE_MS)
