"""Every script on every target: fakeredis with the same Lua, and real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import fakeredis
import pytest

from changeover_shared._store.executor import Executor
from tests.support.driving import Driver
from tests.support.fleet import Stores, fake_executor, small_settings, stores_on
from tests.support.leaks import ownerless
from tests.support.left_out import why_left_out
from tests.support.losing import LOSING, losses_before
from tests.support.targets import TARGETS, Targets


@pytest.fixture(params=(*TARGETS, LOSING))
async def stores(request: pytest.FixtureRequest, targets: Targets) -> AsyncIterator[Stores]:
    """Both sides of the store on an empty server of each kind, and once where every script loses
    its first reply."""
    if reason := why_left_out(request.param, request.function.__name__, request.module.__name__):
        pytest.skip(reason)
    connect: Callable[[], Awaitable[Executor]]
    async with AsyncExitStack() as around:
        target = targets[request.param]
        target.flush()
        if request.param == "fakeredis":
            connect = connected_to_fake(fakeredis.FakeServer())
        elif request.param == LOSING:
            connect = (await around.enter_async_context(losses_before(target.url))).connect
        else:
            connect = partial(Executor.connect, target.url)
        async with stores_on(await connect(), small_settings()) as found:
            found.connect = connect
            yield found
            assert await ownerless(found.executor, found.producer.keys) == []


def connected_to_fake(server: fakeredis.FakeServer) -> Callable[[], Awaitable[Executor]]:
    async def connect() -> Executor:
        return fake_executor(server)

    return connect


@pytest.fixture
async def second(stores: Stores) -> AsyncIterator[Driver]:
    """Another client of the same store, on connections of its own."""
    assert stores.connect is not None
    async with stores_on(await stores.connect(), small_settings()) as others:
        yield Driver(others, first_commit=1001)


@pytest.fixture
def drive(stores: Stores) -> Driver:
    """The scripts one by one, on each target."""
    return Driver(stores)
