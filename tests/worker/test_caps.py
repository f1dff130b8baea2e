"""Workers that may run only so many sessions of a tenant, or of a queue, at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from changeover import Client, Ending, Operator
from changeover_shared._errors import StoreUnavailable
from changeover_shared._items import AssistantMessage
from changeover_shared._settings import Settings
from changeover_shared._store.executor import Executor
from changeover_shared._store.keys import Keys
from changeover_shared._store.lease_store import LeaseStore
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse, TextDelta
from changeover_worker._process.permits import Permits
from tests.support.servers import SERVERS, running_server
from tests.support.working import eventually, eventually_found, own_fleet, working


class Busy:
    """A model that holds each request until so many are there at once, or a moment has passed."""

    name = "busy"

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.gate = asyncio.Event()
        self.gate.set()

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        tenant = request.session_id.partition(":")[0]
        self.running[tenant] += 1
        self.most[tenant] = max(self.most[tenant], self.running[tenant])
        try:
            for _ in range(20):
                await asyncio.sleep(0.001)
            await self.gate.wait()
            await emit(TextDelta("done"))
        finally:
            self.running[tenant] -= 1
        return ModelResponse(AssistantMessage(text="done"))


def busy_app(model: Busy) -> App:
    return App(agents=[Agent("assistant", model="busy")], models={"busy": model})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(SERVERS[-1]) as server:
        yield server


async def submit(url: str, settings: Settings, tenant: str, count: int) -> list[Any]:
    told = settings.model_copy(update={"tenant": tenant})
    async with Client(url, settings=told) as client:
        return [await client.submit(f"{tenant}:{i}", "hello") for i in range(count)]


async def test_four_workers_run_no_more_of_a_tenant_than_may_and_all_of_the_others(
    url: str,
) -> None:
    """Hole 43."""
    settings = own_fleet(tenant_concurrency=2)
    model = Busy()
    async with AsyncExitStack() as stack:
        for name in ("a", "b", "c", "d"):
            await stack.enter_async_context(working(busy_app(model), settings, url, name=name))
        operator = await stack.enter_async_context(Operator(url, settings=settings))
        model.gate.clear()
        receipts = await submit(url, settings, "acme", 10)
        await eventually(lambda: model.running["acme"] == 2, "as many run as may")
        receipts += await submit(url, settings, "other", 2)
        receipts += await submit(url, settings, "third", 1)
        await eventually(
            lambda: (model.running["other"], model.running["third"]) == (2, 1),
            "a tenant that is at its limit keeps nobody else waiting",
        )
        await eventually_found(lambda: _is_limited(operator, 10), "what waits says why")
        assert model.running["acme"] == 2
        model.gate.set()
        for one in receipts:
            outcome = await operator.wait(one.session_id, one.submission_id, timeout="60s")
            assert outcome.ending is Ending.COMPLETED
        assert model.most["acme"] == 2
    assert await _permits(url, settings) == {}


async def test_a_queue_runs_no_more_than_it_may(url: str) -> None:
    settings = own_fleet(queue_concurrency=1)
    model = Busy()
    async with (
        working(busy_app(model), settings, url),
        working(busy_app(model), settings, url),
        Operator(url, settings=settings) as operator,
    ):
        receipts = await submit(url, settings, "acme", 3) + await submit(url, settings, "b", 2)
        for one in receipts:
            await operator.wait(one.session_id, one.submission_id, timeout="60s")
        assert (model.most["acme"], model.most["b"]) == (1, 1)
    assert await _permits(url, settings) == {}


async def test_a_burst_does_not_end_before_what_has_stepped_aside_for_it(url: str) -> None:
    settings = own_fleet(tenant_concurrency=1)
    model = Busy()
    receipts = await submit(url, settings, "acme", 4)
    async with (
        working(busy_app(model), settings, url, burst=True) as one,
        Operator(url, settings=settings) as operator,
    ):
        await one.task
        for receipt in receipts:
            outcome = await operator.wait(receipt.session_id, receipt.submission_id, timeout="5s")
            assert outcome.ending is Ending.COMPLETED
    assert model.most["acme"] == 1


@pytest.mark.parametrize("ends", ["hangs", "fails"])
async def test_what_was_granted_runs_whatever_becomes_of_the_permits_that_are_given_back(
    url: str, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else may serve it until its lease is over, and its own permit is kept till then."""
    settings = own_fleet(tenant_concurrency=2)
    model = Busy()
    called, released = asyncio.Event(), asyncio.Event()
    give_back = Permits.give_back

    async def first_in_trouble(
        self: Permits, store: LeaseStore, nonce: str, ids: Sequence[str]
    ) -> None:
        if called.is_set():
            await give_back(self, store, nonce, ids)
            return
        called.set()
        if ends == "fails":
            raise StoreUnavailable(reason="the server of the limits is away")
        await released.wait()

    monkeypatch.setattr(Permits, "give_back", first_in_trouble)
    async with (
        working(busy_app(model), settings, url),
        Operator(url, settings=settings) as operator,
    ):
        (receipt,) = await submit(url, settings, "acme", 1)
        outcome = await operator.wait(receipt.session_id, receipt.submission_id, timeout="20s")
        assert outcome.ending is Ending.COMPLETED
        assert called.is_set()
        released.set()
    assert await _permits(url, settings) == {}


async def _is_limited(operator: Operator, count: int) -> bool:
    codes = {(await operator.explain(f"acme:{i}")).code for i in range(count)}
    return "tenant_limit" in codes


async def _permits(url: str, settings: Settings) -> dict[str, Any]:
    """What is left in the slot of limits."""
    executor = await Executor.connect(url)
    try:
        limits = Keys(settings.prefix, settings.partitions).limits
        keys = [limits.permits("tenant", name) for name in ("acme", "other", "third", "b")]
        keys.append(limits.permits("queue", "assistant"))
        values = await executor.commands([("ZRANGE", key, 0, -1) for key in keys])
    finally:
        await executor.aclose()
    return {key: found for key, found in zip(keys, values, strict=True) if found}
