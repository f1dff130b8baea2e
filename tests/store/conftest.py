"""Every script on every target: fakeredis with the same Lua, and real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from functools import partial

import fakeredis
import pytest

from changeover_shared._store.executor import Executor
from tests.support.driving import Driver
from tests.support.fleet import TARGETS, Stores, fake_executor, small_settings, stores_on
from tests.support.leaks import ownerless
from tests.support.losing import LEFT_OUT, LOSING, losses_before
from tests.support.servers import SERVERS, flush, running_server


class Servers(dict[str, str]):
    """The URLs of real servers, each started when it is first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        super().__init__()
        self._stack = stack

    def __missing__(self, kind: str) -> str:
        self[kind] = self._stack.enter_context(running_server(kind))
        return self[kind]


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.fixture(params=(*TARGETS, LOSING))
async def stores(request: pytest.FixtureRequest, servers: dict[str, str]) -> AsyncIterator[Stores]:
    """Both sides of the store on an empty server of each kind, and once where every script loses
    its first reply."""
    connect: Callable[[], Awaitable[Executor]]
    async with AsyncExitStack() as around:
        if request.param == "fakeredis":
            connect = connected_to_fake(fakeredis.FakeServer())
        elif request.param == LOSING:
            for left_out in (request.function.__name__, request.module.__name__):
                if reason := LEFT_OUT.get(left_out):
                    pytest.skip(reason)
            url = servers[SERVERS[-1]]
            flush(url)
            connect = (await around.enter_async_context(losses_before(url))).connect
        else:
            flush(servers[request.param])
            connect = partial(Executor.connect, servers[request.param])
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
