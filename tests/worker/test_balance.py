"""Sessions with a constant backlog, a worker that came first and one that idles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from changeover import Client, Receipt, Submission
from changeover_worker import Agent, App
from changeover_worker.testing import ScriptedModel, say
from tests.support.servers import SERVERS, running_server
from tests.support.working import eventually, own_fleet, working

SESSIONS = 8
BACKLOG = 60


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(SERVERS[-1]) as server:
        yield server


def slow_app() -> App:
    model = ScriptedModel.always(say("one two"), chunk=4, pause=0.1)
    return App(models={"m": model}, agents=[Agent("assistant", model="m")])


async def test_an_idle_worker_gets_its_share_of_sessions_that_never_run_dry(url: str) -> None:
    """Hole 47: nobody waits in their partitions, so the first worker would keep them all."""
    settings = own_fleet(lease="3s", renew="500ms", margin="500ms")
    async with Client(url, settings=settings) as client:
        items = [Submission(f"s:{i % SESSIONS}", "more") for i in range(SESSIONS * BACKLOG)]
        async for answer in client.submit_many(items):
            assert isinstance(answer, Receipt)
        async with working(slow_app(), settings, url, name="first") as first:
            await first.has_logged("session_claimed", SESSIONS)
            async with working(slow_app(), settings, url, name="second") as second:
                await eventually(
                    lambda: len(second.logged("session_claimed")) > 1,
                    "the second worker has some of them",
                )
                waiting = (await client.sessions(limit=SESSIONS)).items
                assert all(one.inbox for one in waiting), "nobody has run dry"
