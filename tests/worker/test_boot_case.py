"""A worker that starts touches no session that it does not hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from changeover import Client
from changeover_shared._items import AssistantMessage
from changeover_shared._store.executor import Executor
from changeover_shared._words import Ending
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse, TextDelta
from changeover_worker.testing import ScriptedModel, say
from tests.support.fleet import stores_on
from tests.support.holding import Bench, until_so
from tests.support.recovering import app_of, checkpoint_of
from tests.support.servers import running_server
from tests.support.working import own_fleet, working


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server() as url:
        yield url


class Stuck:
    """Says `Hel` and nothing more."""

    name = "stuck"

    def __init__(self) -> None:
        self.streamed = asyncio.Event()

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        await emit(TextDelta("Hel"))
        self.streamed.set()
        await asyncio.Event().wait()
        return ModelResponse(AssistantMessage())


async def test_a_worker_that_starts_leaves_a_dead_workers_turn_as_it_is_until_it_is_granted(
    server: str,
) -> None:
    """Case M1: starting, looking and listing change nothing of the session, however long its
    lease still has; once that is over the turn goes on, without what was only streamed."""
    settings = own_fleet()
    async with stores_on(await Executor.connect(server), settings) as stores:
        on = Bench(stores, settings)
        await on.submit("hello")
        stuck = Stuck()
        run, held = await on.begin(app_of(stuck))
        await stuck.streamed.wait()

        async def is_told() -> bool:
            return "delta" in await on.types()

        await until_so(is_told, "what was streamed is in the journal")
        run.cancel()
        await asyncio.wait({run})
        before = await own(on)
        model = ScriptedModel(say("Hello to you"))
        async with (
            working(app_of(model), settings, server) as at_work,
            Client(server, settings=settings) as client,
        ):
            await client.submit("other", "a message that shows it at work", agent="nobody")
            assert (await client.session("s")).status == "running"
            assert len((await client.sessions()).items) == 2
            assert (await client.view("s")).text == "Hel"
            assert await own(on) == before
            assert model.requests == []
            await stores.worker.bury(held.lease.incarnation)
            assert (await client.wait("s", "m1", timeout="20s")).ending is Ending.COMPLETED
            assert len(await at_work.has_logged("turn_ended")) == 1
        said = [getattr(entry.item, "text", "") for entry in await on.transcript()]
        assert said == ["hello", "Hello to you"]
        assert (await checkpoint_of(on)).stats.turns == 1


async def own(on: Bench) -> dict[str, Any]:
    """The session's keys."""
    prefix = on.stores.worker.keys.of(on.session).session(on.session, "")
    return {key: value for key, value in (await on.stores.dump()).items() if key.startswith(prefix)}
