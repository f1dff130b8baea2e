"""A paused queue and the workers that serve it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from changeover import Ending, Operator
from tests.support.scripted_app import app
from tests.support.servers import SERVERS, running_server
from tests.support.working import eventually_found, own_fleet, working


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(SERVERS[-1]) as server:
        yield server


async def test_no_worker_takes_what_waits_until_the_queue_is_resumed(url: str) -> None:
    settings = own_fleet()
    async with working(app, settings, url) as at, Operator(url, settings=settings) as operator:
        await operator.pause("assistant", reason="outage")
        waiting = [await operator.submit(f"s:{i}", "hello") for i in range(8)]
        await operator.run("f:1", "a cup", agent="form")
        statuses = {(await operator.session(one.session_id)).status for one in waiting}
        assert statuses == {"ready"}
        assert [one["session"] for one in at.logged("session_claimed")] == ["f:1"]
        await operator.resume("assistant")
        for one in waiting:
            outcome = await operator.wait(one.session_id, one.submission_id, timeout="20s")
            assert outcome.ending is Ending.COMPLETED


async def test_a_turn_that_runs_ends_and_the_next_one_of_its_session_waits(url: str) -> None:
    settings = own_fleet()
    async with working(app, settings, url), Operator(url, settings=settings) as operator:
        first = await operator.submit("s:1", "hello", agent="slow")
        await eventually_found(lambda: _runs(operator), "the first turn runs")
        second = await operator.submit("s:1", "again", agent="slow")
        await operator.pause("slow")
        await operator.interrupt("s:1")
        await operator.wait("s:1", first.submission_id, timeout="20s")
        await eventually_found(lambda: _is(operator, "ready"), "the second turn waits")
        assert (await operator.explain("s:1")).code == "queue_paused"
        await operator.cancel("s:1", second.submission_id)


async def _runs(operator: Operator) -> bool:
    session = await operator.session("s:1")
    return session.turn_id is not None


async def _is(operator: Operator, status: str) -> bool:
    return (await operator.session("s:1")).status == status
