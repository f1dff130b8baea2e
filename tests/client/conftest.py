"""A client and an acted worker on one server: fakeredis with the same scripts, and real ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import fakeredis
import pytest

from changeover import Operator
from changeover_shared._settings import Settings
from changeover_shared._store.executor import Executor
from tests.support.acting import Acting
from tests.support.fleet import Stores, fake_executor, small_settings, stores_on
from tests.support.targets import TARGETS, Targets


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
async def world(request: pytest.FixtureRequest, targets: Targets) -> AsyncIterator[World]:
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
    url = targets[request.param].url
    targets[request.param].flush()
    async with (
        stores_on(await Executor.connect(url), settings) as stores,
        Operator(url, settings=settings) as client,
    ):
        yield World(client, stores, Acting(stores.worker), settings, url)
