"""A client that is closed: what still reads, waits or retries through it ends at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from changeover import (
    Invalid,
    MessageEvent,
    Operator,
    Receipt,
    Refused,
    StoreUnavailable,
    Submission,
    SyncClient,
)
from tests.client.conftest import World
from tests.support.fleet import small_settings
from tests.support.servers import SERVERS, server_process

pytestmark = pytest.mark.timeout(30)

AT_ONCE_S = 3.0
"""Less than a follower's read blocks, and than a retry goes on."""


async def closed(ended: Awaitable[object]) -> None:
    """Whatever it is, it has ended because its client is closed."""
    with pytest.raises(Invalid, match="client: it is closed"):
        await asyncio.wait_for(asyncio.shield(ended), AT_ONCE_S)


@pytest.mark.parametrize("world", SERVERS, indirect=True)
async def test_a_follower_that_waits_inside_redis_ends(world: World) -> None:
    await world.client.submit("web:1", "one", id="m:1")
    events = world.client.follow("web:1", after="start")
    assert isinstance(await anext(events), MessageEvent)
    upcoming = asyncio.ensure_future(anext(events))
    await _blocked(world)
    await world.client.aclose()
    await closed(upcoming)


async def test_a_wait_ends(world: World) -> None:
    receipt = await world.client.submit("web:1", "one", id="m:1")
    one = asyncio.ensure_future(world.client.wait("web:1", "m:1"))
    many = asyncio.ensure_future(anext(world.client.wait_many([receipt])))
    await asyncio.wait([one, many], timeout=0.05)
    await world.client.aclose()
    await closed(one)
    await closed(many)


async def test_nothing_is_asked_of_a_closed_client(world: World) -> None:
    client = world.client
    await client.submit("web:1", "one", id="m:1")
    before = await world.stores.dump()
    await client.aclose()
    await closed(client.submit("web:1", "two"))
    await closed(client.session("web:1"))
    await closed(anext(client.follow("web:1")))
    await closed(anext(client.submit_many([Submission("web:1", "two")])))
    assert await world.stores.dump() == before


@pytest.mark.parametrize("kind", SERVERS[:1])
async def test_retries_against_a_server_that_is_away_end(kind: str) -> None:
    with server_process(kind) as server:
        async with Operator(server.url, settings=small_settings()) as client:
            await client.submit("web:1", "one", id="m:1")
            events = client.follow("web:1", after="start")
            assert isinstance(await anext(events), MessageEvent)
            server.process.kill()
            server.process.wait()
            waiting = [
                asyncio.ensure_future(anext(events)),
                asyncio.ensure_future(client.wait("web:1", "m:1")),
                asyncio.ensure_future(client.submit("web:1", "two", id="m:2")),
                asyncio.ensure_future(anext(client.submit_many([Submission("web:1", "x")]))),
            ]
            with pytest.raises(StoreUnavailable):
                await client.session("web:1")
            await client.aclose()
            for ended in (waiting[0], waiting[1]):
                await closed(ended)
            # Theirs may be accepted, and nobody says that it is not.
            with pytest.raises(StoreUnavailable, match="with id 'm:2' is safe"):
                await asyncio.wait_for(waiting[2], AT_ONCE_S)
            many = await asyncio.wait_for(waiting[3], AT_ONCE_S)
            assert isinstance(many, Refused)
            assert many.code == "store_unavailable"


@pytest.mark.parametrize("world", SERVERS, indirect=True)
async def test_a_thread_ends_when_another_one_closes_its_client(world: World) -> None:
    client = SyncClient(world.url, settings=world.settings)
    client.submit("web:1", "one", id="m:1")
    events = client.follow("web:1", after="start")
    assert isinstance(next(events), MessageEvent)
    following = _in_thread(lambda: next(events))
    waiting = _in_thread(lambda: client.wait("web:1", "m:1"))
    await _blocked(world)
    client.close()
    await closed(following)
    await closed(waiting)
    with pytest.raises(Invalid, match="client: it is closed"):
        list(client.submit_many([Submission("web:1", "two")]))


@pytest.mark.parametrize("kind", SERVERS[:1])
async def test_a_thread_that_retries_ends(kind: str) -> None:
    with server_process(kind) as server:
        client = SyncClient(server.url, settings=small_settings())
        client.submit("web:1", "one", id="m:1")
        server.process.kill()
        server.process.wait()
        retried = threading.Event()
        many = _in_thread(lambda: _first(client, retried))
        await asyncio.to_thread(retried.wait)
        client.close()
        try:
            answer = await asyncio.wait_for(asyncio.shield(many), AT_ONCE_S)
        except Invalid:
            return
        assert isinstance(answer, Refused)
        assert answer.code == "store_unavailable"


def _first(client: SyncClient, began: threading.Event) -> Receipt | Refused:
    began.set()
    return next(iter(client.submit_many([Submission("web:1", "two")])))


def _in_thread(call: Callable[[], object]) -> asyncio.Future[object]:
    return asyncio.ensure_future(asyncio.to_thread(call))


async def _blocked(world: World) -> None:
    """Wait until somebody waits inside Redis."""
    info = b""
    while b"blocked_clients:1" not in info:
        info = await world.stores.executor.command("INFO", "clients")
