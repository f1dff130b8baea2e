"""Quarantined sessions: why they are, what they were doing, and what leaves them. No I/O here."""

from __future__ import annotations

from changeover._checkpoints import checkpoint_of
from changeover_shared._checkpoint import Execution
from changeover_shared._events import Failure, SessionQuarantined
from changeover_shared._identifiers import worker_of
from changeover_shared._results import Quarantined, TurnRecord
from changeover_shared._store.keys import queue_of
from changeover_shared._store.records import Drop, GivenUp, Snapshot
from changeover_shared._words import Ending, Status


def quarantined_of(snapshot: Snapshot, since_ms: int = 0) -> Quarantined:
    """Why a session is stopped; `since_ms` is when it was."""
    head = snapshot.head
    told = SessionQuarantined.model_validate_json(head.stopped or '{"attempts":0}')
    execution = _open_turn(snapshot)
    found = Quarantined(
        session_id=snapshot.session_id,
        agent=head.agent,
        queue=queue_of(head.route),
        tenant=head.tenant or None,
        since_ms=since_ms,
        attempts=head.attempts,
        cause=told.cause,
        error=told.error or None,
        by=told.by or None,
        worker=told.worker or _last_holder(snapshot) or None,
        doing=_doing(execution),
        turn_id=head.turn or None,
        submission_ids=_taken(snapshot),
        inbox=sum(1 for one in snapshot.work.waiting if one.kind != "answer" and not one.turn),
    )
    return found.model_copy(update={"why": why(found)})


def why(found: Quarantined) -> str:
    """All that is known of it in one line."""
    match found.cause:
        case "operator":
            who = f" by {found.by}" if found.by else ""
            return f"stopped{who}: {found.error or 'no reason was given'}"
        case "worker":
            return found.error or "its worker found it broken"
        case "time":
            lead = "held too long without progress"
        case "attempts":
            lead = f"{found.attempts} grants in a row without progress"
    last = [found.error or "the worker was lost"] if found.worker or found.error else []
    if found.worker:
        last.append(f"on {worker_of(found.worker)}")
    if found.doing:
        last.append(f"in {found.doing}")
    return f"{lead}; last: {' '.join(last)}" if last else lead


def given_up(snapshot: Snapshot, drop: Drop, now_ms: int) -> GivenUp:
    """What leaves a quarantined session when it is let go on."""
    if drop == "nothing":
        return GivenUp()
    head, messages = snapshot.head, [w for w in snapshot.work.waiting if w.kind != "answer"]
    taken = [one for one in messages if one.turn]
    gone = messages if drop == "all" else taken or messages[:1]
    return GivenUp(
        skip=gone[0].n if drop == "input" and gone else 0,
        last=max((one.n for one in gone), default=0),
        submissions=tuple(one.submission_id for one in gone),
        turn=head.turn if taken else "",
        record=_record(snapshot, now_ms) if taken else "",
    )


def _taken(snapshot: Snapshot) -> tuple[str, ...]:
    """What the open turn has taken."""
    waiting = snapshot.work.waiting
    return tuple(one.submission_id for one in waiting if one.turn and one.kind != "answer")


def _open_turn(snapshot: Snapshot) -> Execution | None:
    """The turn that is open, if it can be read here."""
    execution = checkpoint_of(snapshot).execution
    return execution if execution is not None and execution.turn_id == snapshot.head.turn else None


def _doing(execution: Execution | None) -> str | None:
    """What was open in the turn when it was stopped."""
    if execution is None:
        return None
    calls = [call.name for call in execution.calls if call.result is None]
    if calls:
        return f"tool {', '.join(calls)}" if len(calls) == 1 else f"tools {', '.join(calls)}"
    if execution.handler_step is not None:
        return f"step {execution.handler_step.name}"
    if execution.step is not None:
        return f"model step {execution.step.index}"
    return None


def _last_holder(snapshot: Snapshot) -> str:
    raw = snapshot.head.raw
    token = raw.get("lapsed") or raw.get("last_rel") or ""
    return token.partition("|")[2].rpartition("|")[0]


def _record(snapshot: Snapshot, now_ms: int) -> str:
    """The record of the turn that ends; what only its checkpoint knows is left out where that
    cannot be read here."""
    execution, head = _open_turn(snapshot), snapshot.head
    stopped = quarantined_of(snapshot)
    record = TurnRecord(
        turn_id=head.turn,
        submission_ids=stopped.submission_ids,
        ending=Ending.DEAD_LETTERED,
        error=Failure(kind="quarantined", message=stopped.why),
        last_item=head.transcript_n,
        finished_at_ms=now_ms,
    )
    if execution is None:
        return record.model_dump_json()
    known = {
        "reply_to": execution.reply_to,
        "usage": execution.usage,
        "steps": execution.next_step,
        "tool_calls": execution.tool_calls,
        "failed_tool_calls": execution.failed_tool_calls,
        "takeovers": execution.takeovers,
        "model": checkpoint_of(snapshot).model,
        "first_item": execution.first_item,
        "started_at_ms": execution.started_at_ms,
        "finished_at_ms": max(now_ms, execution.started_at_ms),
    }
    return record.model_copy(update=known).model_dump_json()


def is_quarantined(snapshot: Snapshot | None) -> bool:
    """Whether a session is stopped."""
    return snapshot is not None and snapshot.head.status is Status.QUARANTINED
