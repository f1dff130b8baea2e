"""A connection on which nothing comes any more and nothing breaks: it is noticed, and replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from changeover_shared._errors import StoreUnavailable
from changeover_shared._store import sync_wire, wire
from changeover_shared._store.executor import Executor
from changeover_shared._store.sync_executor import SyncExecutor
from tests.support.proxy import Proxy, proxy_before
from tests.support.servers import SERVERS
from tests.support.targets import Targets

SOON_S = 0.3


@pytest.fixture(params=SERVERS)
def proxy(request: pytest.FixtureRequest, targets: Targets) -> Iterator[Proxy]:
    target = targets[request.param]
    target.flush()
    with proxy_before(target.url) as proxy:
        yield proxy


@pytest.fixture
def short_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blocking read counts as lost soon after its block time."""
    for module in (wire, sync_wire):
        monkeypatch.setattr(module, "BLOCKING_SLACK_S", SOON_S)


async def test_a_command_comes_back_and_the_next_one_is_answered(proxy: Proxy) -> None:
    executor = await Executor.connect(proxy.url, timeout_s=SOON_S)
    assert await executor.command("SET", "key", "before") == b"OK"
    proxy.swallow()
    with pytest.raises(StoreUnavailable):
        await executor.command("SET", "key", "swallowed")
    proxy.pass_on()
    before = proxy.connections
    assert await executor.command("GET", "key") == b"before"
    assert proxy.connections == before + 1
    await executor.aclose()


async def test_a_connection_is_given_up_that_never_greets(proxy: Proxy) -> None:
    """The first connection meets the silence already."""
    proxy.swallow()
    executor = await Executor.connect(proxy.url, timeout_s=SOON_S)
    with pytest.raises(StoreUnavailable):
        await executor.command("GET", "key")
    proxy.pass_on()
    assert await executor.command("GET", "key") is None
    await executor.aclose()


async def test_a_blocking_read_comes_back_and_the_next_one_is_answered(
    proxy: Proxy, short_slack: None
) -> None:
    executor = await Executor.connect(proxy.url, timeout_s=SOON_S)
    reading = asyncio.create_task(executor.blocking("BLPOP", "silent", "30", block_s=0.1))
    await asyncio.to_thread(proxy.wait_for, "BLPOP")
    proxy.swallow()
    with pytest.raises(StoreUnavailable):
        await reading
    proxy.pass_on()
    await executor.command("RPUSH", "list", "value")
    assert await executor.blocking("BLPOP", "list", "0.1", block_s=0.1) == [b"list", b"value"]
    await executor.aclose()


def test_a_command_comes_back_without_an_event_loop_as_well(proxy: Proxy) -> None:
    executor = SyncExecutor.connect(proxy.url, timeout_s=SOON_S)
    assert executor.command("SET", "key", "before") == b"OK"
    proxy.swallow()
    with pytest.raises(StoreUnavailable):
        executor.command("SET", "key", "swallowed")
    proxy.pass_on()
    before = proxy.connections
    assert executor.command("GET", "key") == b"before"
    assert proxy.connections == before + 1
    executor.close()


def test_a_blocking_read_comes_back_without_an_event_loop_as_well(
    proxy: Proxy, short_slack: None
) -> None:
    executor = SyncExecutor.connect(proxy.url, timeout_s=SOON_S)
    executor.command("RPUSH", "list", "first")
    assert executor.blocking("BLPOP", "list", "0.1", block_s=0.1) == [b"list", b"first"]
    proxy.swallow()
    with pytest.raises(StoreUnavailable):
        executor.blocking("BLPOP", "list", "0.1", block_s=0.1)
    proxy.pass_on()
    executor.command("RPUSH", "list", "second")
    assert executor.blocking("BLPOP", "list", "0.1", block_s=0.1) == [b"list", b"second"]
    executor.close()


async def test_a_read_that_is_cut_off_comes_back_at_once(proxy: Proxy) -> None:
    executor = await Executor.connect(proxy.url, timeout_s=SOON_S)
    reading = asyncio.create_task(executor.blocking("BLPOP", "silent", "30", block_s=30))
    await asyncio.to_thread(proxy.wait_for, "BLPOP")
    proxy.cut()
    with pytest.raises(StoreUnavailable):
        await reading
    await executor.aclose()


async def test_an_answer_that_comes_too_late_is_never_taken_for_another(proxy: Proxy) -> None:
    executor = await Executor.connect(proxy.url, timeout_s=SOON_S)
    await executor.command("SET", "key", "value")
    proxy.delay(2 * SOON_S)
    with pytest.raises(StoreUnavailable):
        await executor.command("ECHO", "late")
    proxy.delay(0)
    assert await executor.command("GET", "key") == b"value"
    await executor.aclose()
