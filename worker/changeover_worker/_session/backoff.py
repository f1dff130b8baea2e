"""A model step that failed: asked again after a pause, which a worker waits out if it is short."""

from __future__ import annotations

from changeover_shared._events import Failure
from changeover_shared._store.clock import ServerClock
from changeover_worker._session.held import Held
from changeover_worker._session.running import Running
from changeover_worker._turn.draft import Tail
from changeover_worker._turn.ending import fail
from changeover_worker._turn.retry import retried


async def step_failed(run: Running, failure: Failure, tail: Tail, *, may_repeat: bool) -> None:
    """Commit that the model step in flight failed: it is asked again later, or its turn ends.

    `may_repeat` is False when something of the answer was admitted that must not come twice.
    Raises as `Running.write`.
    """
    checkpoint, now_ms = run.loaded.checkpoint, run.now_ms
    again = may_repeat and retried(
        checkpoint,
        failure,
        tail,
        retries=run.settings.model_retries,
        now_ms=now_ms,
        jitter=run.jitter,
    )
    await run.write(again or fail(checkpoint, failure, now_ms=now_ms, tail=tail), tail)


async def pause_until(held: Held, clock: ServerClock, until_ms: int) -> None:
    """Wait until a time on Redis's clock, or less: a pause is a step boundary, so it ends at once
    when the session has to stop and when it is wanted elsewhere. `held.leaving` tells which."""
    left_ms = until_ms - clock.now_ms()
    if left_ms > 0:
        await held.changed_or(left_ms / 1000)
