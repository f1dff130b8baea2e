"""Why a session is, or is not, running, and what to do about it. No I/O here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from changeover._answers import holder_of
from changeover._explanation import START, Backlog, Explanation, Reason, span
from changeover._hindrances import hindered
from changeover._parked import why_parked
from changeover._quarantine import quarantined_of
from changeover._waiting import WAITS_FOR_A_WORKER, stepped_aside, why_idle, why_paused, why_ready
from changeover_shared._items import Json
from changeover_shared._results import Pause, WorkerInfo
from changeover_shared._store.keys import queue_of
from changeover_shared._store.records import Refusals, Snapshot
from changeover_shared._words import Status

_UNSEEN: Mapping[str, str] = {}
_NONE = Refusals()


def explain(
    snapshot: Snapshot,
    workers: Sequence[WorkerInfo],
    backlog: Backlog,
    now_ms: int,
    *,
    paused: Pause | None = None,
    server: Mapping[str, str] = _UNSEEN,
    refusals: Refusals = _NONE,
) -> Explanation:
    """Say why the session is where it is. `workers` whose registration is old are silent ones;
    `paused` is why nothing of its queue is granted, `server` what INFO says of its server, empty
    when that was not seen, `refusals` why no session of its partition, or its tenant, takes
    messages."""
    reason = _reason(snapshot, workers, backlog, now_ms)
    if paused is not None and reason[0] in WAITS_FOR_A_WORKER:
        reason = why_paused(snapshot, paused, reason[3], now_ms)
    code, text, remedy, facts = hindered(reason, snapshot.head.tenant, server, refusals)
    return Explanation(
        session_id=snapshot.session_id,
        code=code,
        text=f"{snapshot.session_id} {text}",
        remedy=remedy,
        facts={**facts, **_facts(snapshot, now_ms)},
    )


def _reason(
    snapshot: Snapshot, workers: Sequence[WorkerInfo], backlog: Backlog, now_ms: int
) -> Reason:
    head = snapshot.head
    if aside := stepped_aside(snapshot, now_ms):
        return aside
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
            return why_parked(snapshot, workers, now_ms)
        case Status.READY:
            return why_ready(snapshot, workers, backlog, now_ms)
        case Status.IDLE:
            return why_idle(snapshot, workers, backlog, now_ms)


def _quarantined(snapshot: Snapshot) -> Reason:
    found = quarantined_of(snapshot)
    told = found.model_dump(include={"cause", "error", "by", "worker", "doing"}, exclude_none=True)
    return (
        "quarantined",
        f"is quarantined: {found.why}",
        f"changeover redrive {snapshot.session_id}",
        {"attempts": found.attempts, **told},
    )


def _held(snapshot: Snapshot, workers: Sequence[WorkerInfo], now_ms: int) -> Reason:
    holder = holder_of(snapshot)
    known = next((w for w in workers if w.incarnation == holder), None)
    remaining = span(snapshot.lease_ms - now_ms)
    facts: dict[str, Json] = {"holder": holder, "lease_ms": max(0, snapshot.lease_ms - now_ms)}
    if snapshot.lease_ms <= now_ms:
        return (
            "holder_silent",
            f"is held by {holder}, whose lease is over: the next worker that looks takes it over",
            None if any(w.state == "running" for w in workers) else START,
            facts,
        )
    if known is not None and known.state == "silent":
        silent = span(now_ms - known.renewed_at_ms)
        return (
            "holder_silent",
            f"is held by {holder}, silent for {silent}: takeover in {remaining} at the latest",
            f"wait, or if it is dead: changeover evict {holder}",
            {**facts, "silent_ms": now_ms - known.renewed_at_ms},
        )
    if known is not None and known.state == "draining":
        text = f"is running on {holder}, which drains: it is handed off at the next step boundary"
        return "handing_off", text, None, facts
    return "running", f"is running on {holder}", None, facts


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
