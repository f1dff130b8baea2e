"""A client and an acted worker on one server: fakeredis with the same scripts, and real ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import fakeredis
import pytest

from changeover import Operator
from changeover_shared._settings import Settings
from changeover_shared._store.executor import Executor
from tests.support.acting import Acting
from tests.support.fleet import TARGETS, Stores, fake_executor, small_settings, stores_on
from tests.support.servers import flush, running_server


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, str]]:
    """The URLs of real servers, started with the first test that asks for one."""
    with ExitStack() as stack:
        yield _Servers(stack)


class _Servers(dict[str, str]):
    def __init__(self, stack: ExitStack) -> None:
        super().__init__()
        self._stack = stack

    def __missing__(self, kind: str) -> str:
        self[kind] = self._stack.enter_context(running_server(kind))
        return self[kind]


@dataclass
class World:
    """What a client test has: a client, the stores below it, and a worker that it acts."""

    client: Operator
    stores: Stores
    acting: Acting
    settings: Settings
    url: str | None
    """None on fakeredis."""


@pytest.fixture(params=TARGETS)
async def world(request: pytest.FixtureRequest, servers: dict[str, str]) -> AsyncIterator[World]:
    settings = small_settings(agent="assistant")
    if request.param == "fakeredis":
        server = fakeredis.FakeServer()
        async with (
            stores_on(fake_executor(server), settings) as stores,
            stores_on(fake_executor(server), settings) as mine,
        ):
            client = Operator("redis://nowhere.invalid", settings=settings)
            client._store = mine.producer
            yield World(client, stores, Acting(stores.worker), settings, None)
        return
    url = servers[request.param]
    flush(url)
    async with (
        stores_on(await Executor.connect(url), settings) as stores,
        Operator(url, settings=settings) as client,
    ):
        yield World(client, stores, Acting(stores.worker), settings, url)
