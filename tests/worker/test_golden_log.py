"""What workers log, word for word, in both forms: tests/golden/log.txt. `make golden` writes it
anew.

The stories make what people look for first; what a server, a clock or a frozen process must do for
an event is told by the tests of those.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from changeover import Client
from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_worker import Agent, App, Turn, tool
from changeover_worker._process.log import render_text
from changeover_worker.testing import ScriptedModel, call, fail, say
from tests.support.golden import compare
from tests.support.nodes import Node, running_node
from tests.support.working import Working, own_fleet, working


@pytest.fixture(scope="module")
def server() -> Iterator[Node]:
    with running_node(args=["--appendonly", "yes"]) as server:
        yield server


class Doors:
    """What a tool waits for, and says when it does."""

    def __init__(self) -> None:
        self.inside = asyncio.Event()
        self.open = asyncio.Event()

    async def pass_through(self) -> str:
        self.inside.set()
        await self.open.wait()
        return "done"


def app(doors: Doors) -> App:
    @tool(effect="once")
    async def charge_card() -> str:
        """Charge the card."""
        return await doors.pass_through()

    @tool
    async def out_of_stock() -> str:
        """Raise."""
        raise ValueError("no stock")

    @tool(timeout="50ms")
    async def dawdle() -> str:
        """Take too long."""
        await asyncio.Event().wait()
        return ""

    made = App(
        models={
            "pays": ScriptedModel(call("charge_card"), say("paid")),
            "sells": ScriptedModel(call("out_of_stock"), call("dawdle"), say("sorry")),
            "busy": ScriptedModel(fail(retryable=True, retry_after="10m"), say("later")),
        },
        agents=[
            Agent("pays", model="pays", tools=[charge_card]),
            Agent("sells", model="sells", tools=[out_of_stock, dawdle]),
            Agent("busy", model="busy"),
        ],
    )

    @made.handler("raises")
    async def raises(turn: Turn) -> str:
        async def no_card() -> str:
            raise ValueError("no card")

        return str(await turn.step("charge", no_card))

    return made


async def send(server: Node, settings: Settings, agent: str) -> asyncio.Task[Any]:
    async def ask() -> None:
        async with Client(server.url, settings=settings) as client:
            receipt = await client.submit(f"{agent}:1", "hello", agent=agent, id=f"m-{agent}")
            await client.wait(f"{agent}:1", receipt.submission_id, timeout="60s")

    return asyncio.create_task(ask())


def told(workers: list[Working], events: list[str]) -> str:
    """The first of each event, as people and as programs read it."""
    lines = []
    for event in events:
        found = [one for at in workers for one in at.logged(event)]
        assert found, f"nobody logged {event}"
        entry = dict(found[0])
        level = entry.pop("log_level")
        entry.pop("exc_info", None)
        entry.pop("event")
        machine = {"event": event, "level": level, **entry}
        lines.append(render_text(None, level, {"event": event, "at": "CLOCK", **entry}))
        lines.append(json.dumps(machine, default=str) + "\n")
    return "\n".join(lines)


async def test_the_log_reads_as_it_did(server: Node) -> None:
    doors = Doors()
    settings = own_fleet(build="1.5.0", health_bind="127.0.0.1:0")
    store = await LeaseStore.open(server.url, settings)
    application = app(doors)
    try:
        async with working(application, settings, server.url, name="a") as a:
            for agent in ("sells", "raises"):
                await (await send(server, settings, agent))
            await send(server, settings, "busy")
            await a.has_logged("session_parked")
            paid = await send(server, settings, "pays")
            await doors.inside.wait()
            a.worker.pause()
            await store.bury(a.worker.incarnation)
            other = settings.model_copy(update={"max_inbox": 7})
            async with working(application, other, server.url, name="b") as b:
                await paid
                await b.has_logged("turn_ended")
                doors.open.set()
                await a.has_logged("write_refused")
                a.worker.drain("SIGTERM")
                await a.task
                await a.has_logged("drained")
                text = told(
                    [a, b],
                    [
                        "worker_started", "worker_ready", "health_listening", "session_claimed",
                        "turn_ended", "tool_failed", "tool_timed_out", "step_failed",
                        "handler_failed", "model_failed", "session_parked", "session_taken",
                        "tool_unknown", "write_refused", "settings_differ", "drain_started",
                        "drained", "warning",
                    ],
                )  # fmt: skip
    finally:
        await store.aclose()
    compare("log.txt", text)


async def test_a_session_that_a_failover_has_rewound_is_told_of(server: Node) -> None:
    doors = Doors()
    settings = own_fleet()
    store = await LeaseStore.open(server.url, settings)
    try:
        async with working(app(doors), settings, server.url) as at:
            asked = await send(server, settings, "pays")
            await doors.inside.wait()
            head = store.keys.of("pays:1").session("pays:1", "head")
            held = int(await store.executor.command("HGET", head, "rev"))
            await store.executor.command("HSET", head, "rev", held - 1)
            doors.open.set()
            (rewound,) = await at.has_logged("session_rewound")
            assert (rewound["session"], rewound["rev"]) == ("pays:1", held)
            assert rewound["stored"] == held - 1
            asked.cancel()
    finally:
        await store.aclose()
