"""Spans from who sends a message to the tools that answer it, also when the worker changes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from changeover import Client
from changeover_shared._ops import MessageOp, decode_op, digest, encode_op
from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_worker import Agent, App, tool
from changeover_worker.testing import ScriptedModel, call, fail, say
from tests.support.nodes import Node, running_node
from tests.support.processes import processes
from tests.support.working import eventually, own_fleet, working

EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="module")
def server() -> Iterator[Node]:
    with running_node() as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def provider() -> Iterator[None]:
    """The one that a process may have."""
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(made)
    yield
    EXPORTER.shutdown()


@pytest.fixture(autouse=True)
def spans() -> InMemorySpanExporter:
    EXPORTER.clear()
    return EXPORTER


def named(prefix: str, session: str) -> list[ReadableSpan]:
    """The finished spans of a session, oldest first."""
    return [
        one
        for one in EXPORTER.get_finished_spans()
        if one.name.startswith(prefix) and (one.attributes or {})["changeover.session"] == session
    ]


def id_of(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def links_of(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(one.context.trace_id, one.context.span_id) for one in span.links]


async def ask(server: Node, settings: Settings, session: str, **options: str) -> str:
    async with Client(server.url, settings=settings) as client:
        receipt = await client.submit(session, "hello", agent="assistant", **options)  # type: ignore[arg-type]
        outcome = await client.wait(session, receipt.submission_id, timeout="60s")
        return outcome.ending


async def test_a_turn_is_linked_to_who_sent_it_and_holds_its_steps_and_tools(
    server: Node,
) -> None:
    seen: list[tuple[int, int]] = []

    @tool
    async def weather() -> str:
        """Say what the weather is like."""
        here = trace.get_current_span().get_span_context()
        seen.append((here.trace_id, here.span_id))
        return "sunny"

    model = ScriptedModel(call("weather"), say("It is sunny."))
    app = App(agents=[Agent("assistant", model="main", tools=[weather])], models={"main": model})
    settings = own_fleet()
    async with working(app, settings, server.url):
        with trace.get_tracer("test").start_as_current_span("request") as request:
            assert await ask(server, settings, "s:1") == "completed"
        await eventually(lambda: bool(named("turn", "s:1")), "the turn's span ended")
    (submit,) = named("submit", "s:1")
    assert submit.parent is not None
    assert submit.parent.span_id == request.get_span_context().span_id
    assert submit.kind is SpanKind.PRODUCER
    (turn,) = named("turn assistant", "s:1")
    assert links_of(turn) == [id_of(submit)]
    assert turn.parent is None and turn.kind is SpanKind.CONSUMER
    assert turn.attributes is not None
    assert turn.attributes["changeover.ending"] == "completed"
    assert turn.attributes["changeover.continues"] is False
    steps, tools = named("step main", "s:1"), named("tool weather", "s:1")
    assert (len(steps), len(tools)) == (2, 1)
    for one in (*steps, *tools):
        assert one.parent is not None and one.parent.span_id == id_of(turn)[1]
        assert id_of(one)[0] == id_of(turn)[0]
    # What the tool's own code traces lies under its span.
    assert seen == [id_of(tools[0])]
    assert not any("sunny" in str(one.attributes) for one in EXPORTER.get_finished_spans())


async def test_what_another_worker_goes_on_with_is_linked_to_the_span_before(
    server: Node,
) -> None:
    inside, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def waits() -> str:
        """Wait, the first time."""
        if not inside.is_set():
            inside.set()
            await may_end.wait()
        return "done"

    model = ScriptedModel(call("waits"), say("done"))
    app = App(agents=[Agent("assistant", model="main", tools=[waits])], models={"main": model})
    settings = own_fleet()
    store = await LeaseStore.open(server.url, settings)
    try:
        async with working(app, settings, server.url, name="a") as a:
            asked = asyncio.create_task(ask(server, settings, "s:2"))
            await inside.wait()
            a.worker.pause()
            await store.bury(a.worker.incarnation)
            async with working(app, settings, server.url, name="b"):
                assert await asked == "completed"
                await eventually(lambda: bool(named("turn", "s:2")), "the second span ended")
            may_end.set()
            await eventually(lambda: len(named("turn", "s:2")) == 2, "the first span ended")
    finally:
        await store.aclose()
    second, first = named("turn", "s:2")
    (submit,) = named("submit", "s:2")
    assert links_of(first) == [id_of(submit)]
    assert links_of(second) == [id_of(first)]
    assert first.attributes is not None and second.attributes is not None
    assert second.attributes["changeover.continues"] is True
    assert second.attributes["changeover.fence"] == 2
    assert first.attributes["changeover.ending"] == "lost"
    assert second.attributes["changeover.ending"] == "completed"


async def test_a_model_that_fails_fails_its_step_and_its_turn(server: Node) -> None:
    model = ScriptedModel.always(fail("provider_auth"))
    app = App(agents=[Agent("assistant", model="main")], models={"main": model})
    settings = own_fleet()
    async with working(app, settings, server.url):
        assert await ask(server, settings, "s:3") == "failed"
        await eventually(lambda: bool(named("turn", "s:3")), "the turn's span ended")
    for prefix in ("step", "turn"):
        (span,) = named(prefix, "s:3")
        assert span.status.status_code is StatusCode.ERROR


async def test_sending_again_from_another_span_is_the_same_message(server: Node) -> None:
    settings = own_fleet()
    async with Client(server.url, settings=settings) as client:
        first = await client.submit("s:4", "hello", agent="nobody", id="m1")
        with trace.get_tracer("test").start_as_current_span("again"):
            again = await client.submit("s:4", "hello", agent="nobody", id="m1")
    assert (first.answer, again.answer) == ("accepted", "duplicate")


def test_the_span_travels_in_the_body_and_is_no_part_of_the_content() -> None:
    plain, traced = MessageOp(text="x"), MessageOp(text="x", trace="00-1-2-01")
    assert digest(plain) == digest(traced)
    assert decode_op(encode_op(traced)) == traced
    assert "trace" not in encode_op(plain)


def test_nothing_is_traced_unless_the_process_says_where_spans_go() -> None:
    program = (
        "import opentelemetry.trace\n"
        "from changeover_shared._tracing import here, is_traced\n"
        "from changeover_worker._process.meters import Meters\n"
        "from changeover_worker._process.watchers import watcher_of\n"
        "counts = Meters().sessions\n"
        "print(is_traced(), repr(here()), watcher_of(counts) is counts)"
    )
    assert said_by(program) == "False '' True\n"


class Collector:
    """What is sent over OTLP."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200 if self.path == "/v1/traces" else 404)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


async def test_a_worker_process_sends_its_spans_where_the_environment_says(
    server: Node, tmp_path: Path
) -> None:
    collector, settings = Collector(), own_fleet()
    environment = {
        "CHANGEOVER_REDIS_URL": server.url,
        "CHANGEOVER_PREFIX": settings.prefix,
        "CHANGEOVER_PARTITIONS": str(settings.partitions),
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_SERVICE_NAME": "bot",
    }
    with processes(tmp_path, environment) as started:
        started.python("w", "-m", "changeover_worker", "tests.support.golden_app:app")
        async with Client(server.url, settings=settings) as client:
            await client.run("s:5", "hello", agent="support", timeout="60s")
        await eventually(
            lambda: b"turn support" in b"".join(collector.bodies), "its spans are here"
        )
    collector.server.shutdown()
    collector.server.server_close()
    sent = b"".join(collector.bodies)
    for name in (b"step main", b"tool lookup_order", b"bot", b"s:5"):
        assert name in sent
    assert b"Order 7 was delivered" not in sent


def test_the_environment_says_where_spans_go() -> None:
    program = (
        "import structlog\n"
        "from changeover_shared._tracing import is_traced\n"
        "from changeover_worker._process.watchers import trace_as_environment_says\n"
        "trace_as_environment_says(structlog.get_logger())\n"
        "print(is_traced())"
    )
    # The port of nobody: there is no span to send.
    there = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    assert said_by(program) == "False\n"
    assert said_by(program, **there) == "True\n"
    assert said_by(program, **there, OTEL_TRACES_EXPORTER="none") == "False\n"


def said_by(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.stderr == ""
    return done.stdout
