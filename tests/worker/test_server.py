"""The servers as a worker meets them, before it claims anything."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import redis
from structlog.testing import CapturingLogger

from changeover_shared._errors import ServerUnfit
from changeover_shared._store.lease_store import LeaseStore
from changeover_worker._process.server import checked_server
from tests.support.fleet import small_settings
from tests.support.targets import Targets


@pytest.fixture
async def store(targets: Targets) -> AsyncIterator[LeaseStore]:
    async with aclosing(await LeaseStore.open(targets["cluster"].url, small_settings())) as found:
        yield found


async def test_each_master_of_a_cluster_is_judged(store: LeaseStore) -> None:
    """One that evicts loses what it holds, whatever the others do."""
    (*_, last) = await store.servers()
    with redis.Redis.from_url(last.name) as master:
        master.config_set("maxmemory", "500mb")
        master.config_set("maxmemory-policy", "allkeys-lru")
        try:
            with pytest.raises(ServerUnfit, match="allkeys-lru") as refusal:
                await checked_server(store, CapturingLogger())
        finally:
            master.config_set("maxmemory-policy", "noeviction")
            master.config_set("maxmemory", "0")
    assert last.name in str(refusal.value)


async def test_clocks_that_differ_are_said_at_the_start(
    store: LeaseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 60)
    log: Any = CapturingLogger()
    await checked_server(store, log)
    said = [call.kwargs["text"] for call in log.calls if call.kwargs.get("code") == "clock_skew"]
    assert len(said) == 3
    assert all("s ahead of the server's" in text for text in said)
