"""Redis goes away, or its connections are cut: nothing is lost, doubled or left without an id."""

from __future__ import annotations

import asyncio

import pytest

from changeover import Client, Operator, Receipt, Refused, StoreUnavailable, Submission
from tests.client.conftest import World
from tests.support.fleet import small_settings
from tests.support.servers import SERVERS, server_process

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("world", SERVERS, indirect=True)
async def test_connections_cut_under_many_submissions_lose_double_and_reorder_nothing(
    world: World,
) -> None:
    items = [Submission(f"web:{n % 20}", f"text {n}", id=f"m:{n}") for n in range(600)]
    done = asyncio.Event()

    async def cut() -> None:
        """Cut every connection each time that some more was accepted, in the midst of it."""
        receipts = world.stores.producer.keys.of("web:0").session("web:0", "receipts")
        before = 0
        while not done.is_set():
            accepted = await world.stores.executor.command("HLEN", receipts)
            if accepted > before:
                before = accepted
                await world.stores.executor.command("CLIENT", "KILL", "TYPE", "normal")

    cutting = asyncio.ensure_future(cut())
    answers = [answer async for answer in world.client.submit_many(items, in_flight=150)]
    done.set()
    await cutting
    assert all(isinstance(answer, Receipt) for answer in answers)
    assert [answer.submission_id for answer in answers] == [item.id for item in items]
    for number in range(20):
        waiting = await world.stores.producer.inbox(f"web:{number}")
        assert [entry.submission_id for entry in waiting] == [
            item.id for item in items if item.session == f"web:{number}"
        ]


@pytest.mark.parametrize("kind", SERVERS[:1])
async def test_a_server_that_dies_leaves_the_ids_to_repeat_with(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("changeover._wait.PATIENCE_S", 0.0)
    monkeypatch.setattr("changeover._submit_many.PATIENCE_S", 0.0)
    with server_process(kind) as server:
        async with Operator(server.url, settings=small_settings()) as client:
            running = asyncio.ensure_future(client.run("web:1", "hello", id="m:1"))
            while not (await client.sessions()).items:
                """The submission is on its way."""
            receipt = await client.submit("web:2", "hello", id="m:2")
            server.process.kill()
            server.process.wait()
            with pytest.raises(StoreUnavailable) as run:
                await running
            assert run.value.submission_id == "m:1"
            with pytest.raises(StoreUnavailable):
                await client.wait("web:2", receipt.submission_id)
            many = [Submission("web:1", "x", id="m:4"), Submission("web:1", "y", id="m:5")]
            for answer in [answer async for answer in client.submit_many(many)]:
                assert isinstance(answer, Refused)
                assert answer.code == "store_unavailable"
                assert answer.submission_id in answer.text


@pytest.mark.parametrize("kind", SERVERS[:1])
async def test_a_follower_that_has_begun_waits_for_a_dead_server_instead_of_failing(
    kind: str,
) -> None:
    with server_process(kind) as server:
        async with Client(server.url, settings=small_settings()) as client:
            await client.submit("web:1", "hello", id="m:1")
            events = client.follow("web:1", after="start")
            assert (await anext(events)).seq == 1
            server.process.kill()
            server.process.wait()
            pending = asyncio.ensure_future(anext(events))
            with pytest.raises(StoreUnavailable, match="submitting again with id 'm:2' is safe"):
                await client.submit("web:1", "hello", id="m:2")
            assert not pending.done()
            pending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await pending
