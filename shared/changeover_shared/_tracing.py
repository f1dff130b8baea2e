"""Where a message comes from, for those who trace: the span that sends it.

OpenTelemetry is asked only where the process has set up where its spans go; elsewhere this costs a
look-up, and imports nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NAME: Final = "changeover"
"""Who makes our spans."""


def is_traced() -> bool:
    """Whether spans of this process go anywhere."""
    api = sys.modules.get("opentelemetry.trace")
    # Other libraries import it too; without a provider of the application it stands for nothing.
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


def here() -> str:
    """The span that is current, as a W3C `traceparent`; '' where there is none."""
    if not is_traced():
        return ""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")


@contextmanager
def submitting(session_id: object, submission_id: object) -> Iterator[None]:
    """A span for sending one message, which its turn is linked to."""
    if not is_traced():
        yield
        return
    from opentelemetry import trace

    attributes = {
        "changeover.session": str(session_id),
        "changeover.submission": str(submission_id),
    }
    tracer = trace.get_tracer(NAME)
    kind = trace.SpanKind.PRODUCER
    with tracer.start_as_current_span("submit", kind=kind, attributes=attributes):
        yield
