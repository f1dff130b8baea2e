"""Who watches the sessions of a process: what counts them, and what traces them, if anything."""

from __future__ import annotations

import os

from structlog.typing import FilteringBoundLogger

from changeover_shared._tracing import is_traced
from changeover_worker._process.counted_sessions import SessionCounts
from changeover_worker._session.watching import Watcher, Watchers


def trace_as_environment_says(log: FilteringBoundLogger) -> None:
    """Trace where the standard variables of OpenTelemetry say so."""
    if not any(name.startswith("OTEL_") for name in os.environ):
        return
    try:
        from changeover_worker._process import traces

        if traces.is_wanted():
            traces.send_as_environment_says()
    except ImportError:
        text = "nothing is traced; pip install 'changeover[otel]'"
        log.warning("warning", code="otel_missing", text=text)


def watcher_of(counts: SessionCounts) -> Watcher:
    """What watches in this process."""
    if not is_traced():
        return counts
    from changeover_worker._process.traces import Traces

    return Watchers(counts, Traces())
