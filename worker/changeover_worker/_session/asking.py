"""The open model step: asked, and asked again after a pause if it failed."""

from __future__ import annotations

from changeover_shared._checkpoint import Checkpoint, Execution
from changeover_worker._models.gate import Limited
from changeover_worker._session.model_step import Question, StepEnd, ask
from changeover_worker._session.running import Running
from changeover_worker._session.signals import Moment, reached
from changeover_worker._session.step_recorder import StepRecorder
from changeover_worker._session.watching import Asked
from changeover_worker._turn.draft import Draft
from changeover_worker._turn.execution import stamp
from changeover_worker._turn.retry import HELD_PAUSE_MS, MAX_ERROR, retried
from changeover_worker._turn.retry import limited as set_back


async def ask_for(run: Running, execution: Execution, question: Question, *, model: str) -> StepEnd:
    """Ask `model` for the step that is open; what it says goes into the journal as it comes.

    Raises the `LeaseError` with which the session was lost meanwhile.
    """
    step_id = execution.step.step_id if execution.step else None
    await reached(Moment.STEP_STARTED, run.loaded.session_id, str(step_id))
    asked = asked_of(run, execution, model)

    def speaks() -> None:
        if run.answering == execution.turn_id:
            run.answering = ""
            waited_ms = max(0, run.now_ms - execution.started_at_ms)
            run.watcher.first_text(run.agent.name, waited_ms / 1000)

    with run.watcher.asking(asked):
        end = await ask(
            question,
            StepRecorder(run.recorder, stamp(execution, step_id)),
            run.held,
            timeout_s=run.settings.step_timeout.total_seconds(),
            speaks=speaks,
        )
        note_end(asked, end)
    run.stop_if_lost()
    return end


def asked_of(run: Running, execution: Execution, model: str) -> Asked:
    """A model that is about to be asked, for who watches."""
    return Asked(
        model=model,
        agent=run.agent.name,
        session_id=run.loaded.session_id,
        turn_id=execution.turn_id,
        step=execution.next_step,
    )


def note_end(asked: Asked, end: StepEnd) -> None:
    """Say how it went to who watches."""
    asked.usage = end.tail.usage
    if end.response is not None:
        asked.ending = "completed"
    elif end.limited is not None:
        asked.ending = "limited"
    elif end.failure is not None:
        asked.ending, asked.error = "failed", end.failure.kind


def asked_again(run: Running, end: StepEnd, model: str) -> Draft | None:
    """The commit that has a failed model step asked again later; None if it is not: its failure
    would not pass, or something of the answer was admitted that must not come twice.

    Operators are told of the failure at once: the journal says why only when the turn fails.
    """
    execution = run.loaded.checkpoint.execution
    run.log.warning(
        "model_failed",
        session=run.loaded.session_id,
        turn=execution.turn_id if execution is not None else "",
        kind=end.why.kind,
        error=end.why.message[:MAX_ERROR],
    )
    if end.calls_admitted:
        return None
    return retried(
        run.loaded.checkpoint,
        end.why,
        end.tail,
        retries=run.settings.model_retries,
        model=model,
        now_ms=run.now_ms,
        jitter=run.jitter,
        may_hold=run.commits.has_time_to_ask_again(HELD_PAUSE_MS),
    )


async def set_aside(run: Running, limited: Limited, checkpoint: Checkpoint) -> None:
    """Have the turn go on when the limit of a model allows it: elsewhere, if the session is wanted
    there, or without anybody who waits. Raises as `Running.write`."""
    leaving = run.held.leaving
    wait_ms = limited.wait_ms if leaving else max(limited.wait_ms, HELD_PAUSE_MS)
    parks = not leaving or wait_ms > HELD_PAUSE_MS
    until_ms = run.now_ms + wait_ms
    await run.write(set_back(checkpoint, limited.model, until_ms, parks=parks))
    if parks:
        run.log.info(
            "limiter_parked",
            session=run.loaded.session_id,
            model=limited.model,
            s=round(wait_ms / 1000, 1),
        )


async def pause_until(run: Running, until_ms: int) -> bool:
    """Wait until a time on Redis's clock, and no longer than a worker ever waits, should that
    clock be set back meanwhile. False, at once, when the session has to stop and when it is wanted
    elsewhere: a pause is a step boundary."""
    left_ms = min(until_ms - run.now_ms, HELD_PAUSE_MS)
    await run.held.changed_or(max(0, left_ms) / 1000)
    return not run.held.leaving
