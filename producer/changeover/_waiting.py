"""Why a session that nobody holds waits: for its time, for a worker, for its turn. No I/O here."""

from __future__ import annotations

from collections.abc import Sequence

from changeover._answers import has_stepped_aside
from changeover._explanation import START, Backlog, Code, Reason, span
from changeover._paused import paused_text
from changeover_shared._items import Json
from changeover_shared._results import Pause, WorkerInfo
from changeover_shared._store.keys import queue_of
from changeover_shared._store.records import Snapshot
from changeover_shared._words import FORMAT, SUSPECT_AFTER


def why_ready(
    snapshot: Snapshot, workers: Sequence[WorkerInfo], backlog: Backlog, now_ms: int
) -> Reason:
    """It has something to do, and no worker has it."""
    head = snapshot.head
    queue, _, written = head.route.rpartition("@")
    waited = span(now_ms - head.at_ms)
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


def stepped_aside(snapshot: Snapshot, now_ms: int) -> Reason | None:
    """As many of its tenant, or of its queue, run as may; None when that was not so lately."""
    head = snapshot.head
    if not has_stepped_aside(head, now_ms):
        return None
    kind = head.raw["deferred"]
    queue = queue_of(head.route)
    whose = f"its tenant {head.tenant}" if kind == "tenant" else f"its queue {queue}"
    text = f"is ready: as many sessions of {whose} run as may at once; it is offered again soon"
    code: Code = "tenant_limit" if kind == "tenant" else "queue_limit"
    remedy = f"wait, or raise CHANGEOVER_{kind.upper()}_CONCURRENCY of all workers"
    return code, text, remedy, {"tenant": head.tenant or None}


WAITS_FOR_A_WORKER: frozenset[Code] = frozenset(
    ("waiting_for_slot", "no_worker_for_queue", "no_worker_for_agent")
)


def why_paused(snapshot: Snapshot, paused: Pause, facts: dict[str, Json], now_ms: int) -> Reason:
    """Nothing of its queue is granted."""
    queue = queue_of(snapshot.head.route)
    waited = span(now_ms - snapshot.head.at_ms)
    text = f"is ready and has waited {waited}: its queue {queue} is {paused_text(paused, now_ms)}"
    told: dict[str, Json] = {"paused_by": paused.by or None, "reason": paused.reason or None}
    return "queue_paused", text, f"changeover resume {queue}", {**facts, **told}


def _unserved(
    lead: str, agent: str, queue: str, workers: Sequence[WorkerInfo], facts: dict[str, Json]
) -> Reason:
    text, remedy = (
        f"{lead}: no worker serves its queue {queue}",
        f"{START} -q {queue}",
    )
    if workers and not any(agent in w.agents for w in workers):
        text += f", and none has its agent {agent}"
        remedy = (
            f"start a worker of an app that has the agent {agent}: {remedy}; if the name is wrong, "
            "use another session with the right --agent"
        )
    return "no_worker_for_queue", text, remedy, facts


def why_idle(
    snapshot: Snapshot, workers: Sequence[WorkerInfo], backlog: Backlog, now_ms: int
) -> Reason:
    """It has nothing to do, or not yet."""
    waiting = [w for w in snapshot.work.waiting if not w.turn]
    open_dues = [w.due_ms for w in waiting]
    if not open_dues and not snapshot.head.turn:
        return "idle", "is idle: nothing waits", None, {}
    not_before = int(snapshot.head.raw.get("not_before") or 0)
    due = max(not_before, min(open_dues, default=0))
    if not_before > now_ms:
        reason = why_ready(snapshot, workers, backlog, now_ms)
        if reason[0] in ("no_worker_for_queue", "no_worker_for_agent", "format_too_new"):
            return reason
    if due > now_ms and any(w.key == "debounce" for w in waiting if w.due_ms == due):
        text = f"gathers messages: its turn begins in {span(due - now_ms)} if no more come"
        return "debouncing", text, None, {"due_ms": due}
    if due > now_ms:
        text = f"waits for its time: due in {span(due - now_ms)}"
        return "scheduled", text, None, {"due_ms": due}
    return why_ready(snapshot, workers, backlog, now_ms)


def _one_up(place: int | None) -> int | None:
    return None if place is None else place + 1
