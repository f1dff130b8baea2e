"""Why a parked session waits: for a time, for its provider, for a limit. No I/O here."""

from __future__ import annotations

from collections.abc import Sequence

from changeover._checkpoints import checkpoint_of
from changeover._explanation import START, Code, Reason, span
from changeover_shared._items import Json
from changeover_shared._results import WorkerInfo
from changeover_shared._store.keys import queue_of
from changeover_shared._store.records import Snapshot


def why_parked(snapshot: Snapshot, workers: Sequence[WorkerInfo], now_ms: int) -> Reason:
    """Why a parked session waits, and until when."""
    waits = snapshot.work.waits
    timers = [wait for wait in waits if wait.kind == "timer"]
    if not timers or len(timers) < len(waits):
        named = ", ".join(f"{wait.kind} {wait.wait_id}" for wait in waits)
        return "parked", f"is parked: it waits for {named or 'a time'}", None, {}
    until_ms = min(wait.deadline_ms for wait in timers)
    code: Code = "parked_timer"
    facts: dict[str, Json] = {"wait": timers[0].wait_id, "until_ms": until_ms}
    why = "it goes on"
    if any(wait.wait_id == "retry" for wait in timers):
        code, why, more = _retried(snapshot)
        facts |= more
    text = f"is parked: {why} in {span(until_ms - now_ms)}"
    if until_ms <= now_ms:
        text = f"is parked: {why} as soon as a worker looks, its time is over"
    queue = queue_of(snapshot.head.route)
    if not any(w.state == "running" and queue in w.queues for w in workers):
        text, remedy = f"{text}; no worker serves its queue {queue}", f"{START} -q {queue}"
        return code, text, remedy, facts
    remedy = f"wait, or end its turn: changeover interrupt {snapshot.session_id}"
    return code, text, remedy, facts


def _retried(snapshot: Snapshot) -> tuple[Code, str, dict[str, Json]]:
    """Why a model is asked later: its provider, or the limit that stands before it."""
    execution = checkpoint_of(snapshot).execution
    retry = execution.retry if execution is not None else None
    if retry is not None and retry.kind == "limit":
        why = f"model {retry.model} is at its limit, and is asked"
        return "rate_limited", why, {"model": retry.model}
    error = f" ({retry.error})" if retry is not None and retry.error else ""
    why = f"the model failed{error} and is asked again"
    if retry is not None and retry.kind == "provider_rate_limit":
        return "rate_limited", why, {"model": retry.model or None}
    return "parked_timer", why, {}
