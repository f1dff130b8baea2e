"""Spans of turns, model steps and tools, for OpenTelemetry.

A turn is a trace of its own, linked to the spans that sent its messages. What another worker goes
on with is a new span, linked to the one before: the checkpoint names it, so the link is as durable
as the turn. Spans hold ids, as traces should, and nothing that was said.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from typing import Final

from opentelemetry import context as current
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from changeover_shared._checkpoint import Execution
from changeover_shared._tracing import NAME
from changeover_worker._session.watching import Asked, Called

Attributes = Mapping[str, str | int]

_WANTED: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
)


def is_wanted() -> bool:
    """Whether the environment names somewhere to send traces to."""
    return any(os.environ.get(name) for name in _WANTED) and (
        os.environ.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp"
    )


def send_as_environment_says() -> None:
    """Send spans over OTLP, unless the application has set up where they go. Raises
    `ImportError` without the extra."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


class Traces:
    """Makes spans of what is asked and run."""

    @contextmanager
    def asking(self, asked: Asked) -> Iterator[None]:
        """A span for one model step."""
        attributes: Attributes = {
            **_whose(asked.session_id, asked.turn_id),
            "changeover.step": asked.step,
            "gen_ai.request.model": asked.model,
        }
        with _span(f"step {asked.model}", SpanKind.CLIENT, attributes) as span:
            try:
                yield
            finally:
                span.set_attribute("changeover.ending", asked.ending)
                span.set_attribute("gen_ai.usage.input_tokens", asked.usage.input_tokens)
                span.set_attribute("gen_ai.usage.output_tokens", asked.usage.output_tokens)
                if asked.ending == "failed":
                    span.set_status(Status(StatusCode.ERROR, asked.error))

    @contextmanager
    def calling(self, called: Called) -> Iterator[None]:
        """A span for one call of a tool."""
        attributes: Attributes = {
            **_whose(called.session_id, called.turn_id),
            "changeover.call": called.call_id,
            "gen_ai.tool.name": called.tool,
        }
        with _span(f"tool {called.tool}", SpanKind.INTERNAL, attributes) as span:
            try:
                yield
            finally:
                span.set_attribute("changeover.ending", called.ending)
                if called.ending in ("error", "unknown"):
                    span.set_status(Status(StatusCode.ERROR))

    def first_text(self, agent: str, seconds: float) -> None:
        """Note it on the step that speaks."""
        trace.get_current_span().add_event("first_text", {"changeover.seconds": seconds})

    def session(self, session_id: str, agent: str, fence: int) -> TracedSession:
        """Makes the spans of one session's turns while it is held."""
        return TracedSession(session_id, agent, fence)


class TracedSession:
    """The spans of one held session's turns. One task uses it."""

    def __init__(self, session_id: str, agent: str, fence: int) -> None:
        self._session_id = session_id
        self._agent = agent
        self._fence = fence
        self._heard: dict[str, str] = {}
        self._turn_id = ""
        self._span: Span | None = None
        self._before: Token[current.Context] | None = None
        self._trace = ""

    def heard(self, submission_id: str, sent_by: str) -> None:
        """A turn is about to take a submission."""
        if sent_by:
            self._heard[submission_id] = sent_by

    def sees(self, execution: Execution | None, ending: str = "") -> str:
        """The turn that is open from here on; what its checkpoint should say of it."""
        if self._span is not None and (execution is None or execution.turn_id != self._turn_id):
            self.end(ending)
        if execution is None:
            return ""
        if self._span is None:
            self._begin(execution)
        return self._trace

    def end(self, how: str) -> None:
        """The open turn has ended, or is not here any more."""
        if self._span is None:
            return
        self._span.set_attribute("changeover.ending", how)
        if how == "failed":
            self._span.set_status(Status(StatusCode.ERROR))
        if self._before is not None:
            current.detach(self._before)
        self._span.end()
        self._span, self._turn_id, self._trace = None, "", ""

    def _begin(self, execution: Execution) -> None:
        sent = [self._heard.pop(one, "") for one in execution.submission_ids]
        came_from = [execution.trace] if execution.trace else sent
        self._turn_id = execution.turn_id
        self._span = trace.get_tracer(NAME).start_span(
            f"turn {self._agent}",
            context=current.Context(),
            kind=SpanKind.CONSUMER,
            links=[Link(found) for text in came_from if (found := _context(text)) is not None],
            attributes={
                **_whose(self._session_id, execution.turn_id),
                "changeover.agent": self._agent,
                "changeover.fence": self._fence,
                "changeover.continues": bool(execution.trace),
                "changeover.submissions": list(execution.submission_ids),
            },
        )
        there = trace.set_span_in_context(self._span)
        self._before = current.attach(there)
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, context=there)
        self._trace = carrier.get("traceparent", "")


def _context(text: str) -> trace.SpanContext | None:
    """The span that a `traceparent` names."""
    carrier = {"traceparent": text}
    found = trace.get_current_span(TraceContextTextMapPropagator().extract(carrier))
    context = found.get_span_context()
    return context if context.is_valid else None


def _whose(session_id: str, turn_id: str) -> dict[str, str]:
    return {"changeover.session": session_id, "changeover.turn": turn_id}


@contextmanager
def _span(name: str, kind: SpanKind, attributes: Attributes) -> Iterator[Span]:
    tracer = trace.get_tracer(NAME)
    with tracer.start_as_current_span(name, kind=kind, attributes=attributes) as span:
        yield span
