"""Why a session is, or is not, running, and what to do about it. No I/O here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal

from changeover._answers import holder_of
from changeover._checkpoints import checkpoint_of
from changeover._paused import paused_text
from changeover._quarantine import quarantined_of
from changeover_shared._items import Json, Wire
from changeover_shared._results import Pause, WorkerInfo
from changeover_shared._store.keys import queue_of
from changeover_shared._store.records import Snapshot
from changeover_shared._units import show_duration
from changeover_shared._words import FORMAT, SUSPECT_AFTER, Status

Code = Literal[
    "idle",
    "running",
    "handing_off",
    "holder_silent",
    "waiting_for_slot",
    "no_worker_for_queue",
    "no_worker_for_agent",
    "format_too_new",
    "queue_paused",
    "tenant_limit",
    "queue_limit",
    "scheduled",
    "debouncing",
    "parked",
    "parked_timer",
    "quarantined",
    "closed",
    "deleted",
]
"""What a session is doing or waiting for: the same words in Python, in `--json` and in logs."""

Backlog = tuple[int | None, int]
"""The session's place in its ready set, from 0, and how many are in it."""


class Explanation(Wire):
    """One session's reason, in words for people and a code for programs."""

    session_id: str
    code: Code
    text: str
    remedy: str | None = None
    """A command line, or what else to do; None when all is well."""
    facts: Mapping[str, Json] = {}


def explain(
    snapshot: Snapshot,
    workers: Sequence[WorkerInfo],
    backlog: Backlog,
    now_ms: int,
    *,
    paused: Pause | None = None,
) -> Explanation:
    """Say why the session is where it is. `workers` whose registration is old are silent ones;
    `paused` is why nothing of its queue is granted."""
    code, text, remedy, facts = _reason(snapshot, workers, backlog, now_ms)
    if paused is not None and code in _WAITS_FOR_A_WORKER:
        code, text, remedy, facts = _paused(snapshot, paused, facts, now_ms)
    return Explanation(
        session_id=snapshot.session_id,
        code=code,
        text=f"{snapshot.session_id} {text}",
        remedy=remedy,
        facts={**facts, **_facts(snapshot, now_ms)},
    )


_Reason = tuple[Code, str, str | None, dict[str, Json]]


def _reason(
    snapshot: Snapshot, workers: Sequence[WorkerInfo], backlog: Backlog, now_ms: int
) -> _Reason:
    head = snapshot.head
    if limited := _limited(snapshot, now_ms):
        return limited
    match head.status:
        case Status.DELETED:
            return "deleted", "was deleted", None, {}
        case Status.CLOSED:
            return "closed", "is closed: it takes nothing more", None, {}
        case Status.QUARANTINED:
            return _quarantined(snapshot)
        case Status.HELD:
            return _held(snapshot, workers, now_ms)
        case Status.PARKED:
            return _parked(snapshot, workers, now_ms)
        case Status.READY:
            return _ready(snapshot, workers, backlog, now_ms)
        case Status.IDLE:
            return _idle(snapshot, workers, backlog, now_ms)


def _quarantined(snapshot: Snapshot) -> _Reason:
    found = quarantined_of(snapshot)
    told = found.model_dump(include={"cause", "error", "by", "worker", "doing"}, exclude_none=True)
    return (
        "quarantined",
        f"is quarantined: {found.why}",
        f"changeover redrive {snapshot.session_id}",
        {"attempts": found.attempts, **told},
    )


def _parked(snapshot: Snapshot, workers: Sequence[WorkerInfo], now_ms: int) -> _Reason:
    waits = snapshot.work.waits
    timers = [wait for wait in waits if wait.kind == "timer"]
    if not timers or len(timers) < len(waits):
        named = ", ".join(f"{wait.kind} {wait.wait_id}" for wait in waits)
        return "parked", f"is parked: it waits for {named or 'a time'}", None, {}
    until_ms = min(wait.deadline_ms for wait in timers)
    facts: dict[str, Json] = {"wait": timers[0].wait_id, "until_ms": until_ms}
    why = "it goes on"
    if any(wait.wait_id == "retry" for wait in timers):
        execution = checkpoint_of(snapshot).execution
        error = execution.retry.error if execution is not None and execution.retry else ""
        why = f"the model failed{f' ({error})' if error else ''} and is asked again"
    text = f"is parked: {why} in {_span(until_ms - now_ms)}"
    if until_ms <= now_ms:
        text = f"is parked: {why} as soon as a worker looks, its time is over"
    queue = queue_of(snapshot.head.route)
    if not any(w.state == "running" and queue in w.queues for w in workers):
        text, remedy = f"{text}; no worker serves its queue {queue}", f"{_START} -q {queue}"
        return "parked_timer", text, remedy, facts
    remedy = f"wait, or end its turn: changeover interrupt {snapshot.session_id}"
    return "parked_timer", text, remedy, facts


def _held(snapshot: Snapshot, workers: Sequence[WorkerInfo], now_ms: int) -> _Reason:
    holder = holder_of(snapshot)
    known = next((w for w in workers if w.incarnation == holder), None)
    remaining = _span(snapshot.lease_ms - now_ms)
    facts: dict[str, Json] = {"holder": holder, "lease_ms": max(0, snapshot.lease_ms - now_ms)}
    if snapshot.lease_ms <= now_ms:
        return (
            "holder_silent",
            f"is held by {holder}, whose lease is over: the next worker that looks takes it over",
            None if any(w.state == "running" for w in workers) else _START,
            facts,
        )
    if known is not None and known.state == "silent":
        silent = _span(now_ms - known.renewed_at_ms)
        return (
            "holder_silent",
            f"is held by {holder}, silent for {silent}: takeover in {remaining} at the latest",
            None,
            {**facts, "silent_ms": now_ms - known.renewed_at_ms},
        )
    if known is not None and known.state == "draining":
        text = f"is running on {holder}, which drains: it is handed off at the next step boundary"
        return "handing_off", text, None, facts
    return "running", f"is running on {holder}", None, facts


def _ready(
    snapshot: Snapshot, workers: Sequence[WorkerInfo], backlog: Backlog, now_ms: int
) -> _Reason:
    head = snapshot.head
    queue, _, written = head.route.rpartition("@")
    waited = _span(now_ms - head.at_ms)
    lead = f"is ready and has waited {waited}"
    place, ready = backlog
    serving = [w for w in workers if w.state == "running" and queue in w.queues]
    facts: dict[str, Json] = {
        "ready": ready,
        "serving": [w.worker for w in serving],
        "alive": sum(1 for w in workers if w.state != "silent"),
    }
    if written != str(FORMAT):
        text = f"{lead}: it was written in format {written}, this release reads {FORMAT}"
        return "format_too_new", text, "start workers of the newer release", facts
    if not serving:
        return _unserved(lead, head.agent, queue, workers, facts)
    if not any(head.agent in w.agents for w in serving):
        text = f"{lead}: no worker of queue {queue} has its agent {head.agent}"
        remedy = (
            f"add the agent {head.agent} to the app of the workers of {queue}; if the name is "
            "wrong, use another session with the right --agent"
        )
        return "no_worker_for_agent", text, remedy, facts
    wish = "a free slot"
    if head.attempts >= SUSPECT_AFTER:
        wish = f"a worker that holds nothing else, after {head.attempts} grants without progress"
    text = f"{lead} for {wish}"
    if place is not None:
        text += f": position {place + 1} of {ready} in its partition"
    full = all(w.sessions >= w.slots for w in serving)
    more = "start another worker, or raise CHANGEOVER_CONCURRENCY" if full else None
    return "waiting_for_slot", text, more, {**facts, "position": _one_up(place)}


LIMITED_MS = 5_000
"""How long after a session stepped aside nobody has looked again."""


def _limited(snapshot: Snapshot, now_ms: int) -> _Reason | None:
    head, raw = snapshot.head, snapshot.head.raw
    kind = raw.get("deferred", "")
    if not kind or int(raw.get("not_before") or 0) + LIMITED_MS < now_ms:
        return None
    if head.status not in (Status.READY, Status.IDLE, Status.PARKED):
        return None
    queue = queue_of(head.route)
    whose = f"its tenant {head.tenant}" if kind == "tenant" else f"its queue {queue}"
    text = f"is ready: as many sessions of {whose} run as may at once; it is offered again soon"
    code: Code = "tenant_limit" if kind == "tenant" else "queue_limit"
    remedy = f"wait, or raise CHANGEOVER_{kind.upper()}_CONCURRENCY of all workers"
    return code, text, remedy, {"tenant": head.tenant or None}


_WAITS_FOR_A_WORKER: frozenset[Code] = frozenset(
    ("waiting_for_slot", "no_worker_for_queue", "no_worker_for_agent")
)


def _paused(snapshot: Snapshot, paused: Pause, facts: dict[str, Json], now_ms: int) -> _Reason:
    queue = queue_of(snapshot.head.route)
    waited = _span(now_ms - snapshot.head.at_ms)
    text = f"is ready and has waited {waited}: its queue {queue} is {paused_text(paused, now_ms)}"
    told: dict[str, Json] = {"paused_by": paused.by or None, "reason": paused.reason or None}
    return "queue_paused", text, f"changeover resume {queue}", {**facts, **told}


def _unserved(
    lead: str, agent: str, queue: str, workers: Sequence[WorkerInfo], facts: dict[str, Json]
) -> _Reason:
    text, remedy = (
        f"{lead}: no worker serves its queue {queue}",
        f"{_START} -q {queue}",
    )
    if workers and not any(agent in w.agents for w in workers):
        text += f", and none has its agent {agent}"
        remedy = (
            f"start a worker of an app that has the agent {agent}: {remedy}; if the name is wrong, "
            "use another session with the right --agent"
        )
    return "no_worker_for_queue", text, remedy, facts


def _idle(
    snapshot: Snapshot, workers: Sequence[WorkerInfo], backlog: Backlog, now_ms: int
) -> _Reason:
    waiting = [w for w in snapshot.work.waiting if not w.turn]
    open_dues = [w.due_ms for w in waiting]
    if not open_dues and not snapshot.head.turn:
        return "idle", "is idle: nothing waits", None, {}
    not_before = int(snapshot.head.raw.get("not_before") or 0)
    due = max(not_before, min(open_dues, default=0))
    if not_before > now_ms:
        reason = _ready(snapshot, workers, backlog, now_ms)
        if reason[0] in ("no_worker_for_queue", "no_worker_for_agent", "format_too_new"):
            return reason
    if due > now_ms and any(w.key == "debounce" for w in waiting if w.due_ms == due):
        text = f"gathers messages: its turn begins in {_span(due - now_ms)} if no more come"
        return "debouncing", text, None, {"due_ms": due}
    if due > now_ms:
        text = f"waits for its time: due in {_span(due - now_ms)}"
        return "scheduled", text, None, {"due_ms": due}
    return _ready(snapshot, workers, backlog, now_ms)


_START = "changeover worker APP"


def _facts(snapshot: Snapshot, now_ms: int) -> dict[str, Json]:
    head = snapshot.head
    return {
        "agent": head.agent,
        "queue": queue_of(head.route),
        "fence": head.fence,
        "seq": head.seq,
        "revision": head.rev,
        "inbox": sum(1 for w in snapshot.work.waiting if w.kind != "answer" and not w.turn),
        "turn": head.turn or None,
        "attempts": head.attempts,
        "updated_ms_ago": max(0, now_ms - head.at_ms),
    }


def _one_up(place: int | None) -> int | None:
    return None if place is None else place + 1


def _span(ms: int) -> str:
    return show_duration(timedelta(milliseconds=max(0, ms)))
