"""A fleet at work lives through failures of its Redis: no worker dies, nothing ends twice."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.support.servers import SERVERS, phoenix_server
from tests.support.storms import fleet_at_work

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def seed() -> int:
    """Printed when a test fails."""
    chosen = int(os.environ.get("SEED") or random.randrange(10**6))
    print(f"seed {chosen}")  # noqa: T201 - shown with a failure
    return chosen


@pytest.mark.parametrize("kind", SERVERS)
async def test_a_redis_that_is_killed_and_starts_on_its_aof_loses_nothing(
    kind: str, tmp_path: Path, seed: int
) -> None:
    with phoenix_server(kind, ["--appendonly", "yes", "--appendfsync", "always"]) as server:
        async with fleet_at_work(server.url, tmp_path, seed=seed) as fleet:
            for _ in range(2):
                await fleet.accepts(40)
                server.die()
                server.rise()
                await fleet.goes_on()
            report = await fleet.settled()
    assert report.tool_runs > 5
    assert report.against() == []
