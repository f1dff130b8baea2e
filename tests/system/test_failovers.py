"""A fleet at work lives through failovers: by Sentinel, and of a Cluster whose slots move as well.
`make chaos` has ten of each."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.failovers import cluster_failovers, sentinel_failovers
from tests.support.servers import SERVERS

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def seed() -> int:
    """Printed when a test fails."""
    chosen = int(os.environ.get("SEED") or random.randrange(10**6))
    print(f"seed {chosen}")  # noqa: T201 - shown with a failure
    return chosen


async def test_what_waited_for_its_replicas_outlives_failovers_by_sentinel(
    tmp_path: Path, seed: int
) -> None:
    """Nothing that was acknowledged is lost, none of it ends twice, no `once` tool runs twice."""
    kind = SERVERS[seed % len(SERVERS)]
    report = await sentinel_failovers(kind, tmp_path, seed=seed, times=2, durable=True, say=print)
    print(kind, report)  # noqa: T201 - shown with a failure
    assert report.tool_runs > 5
    assert report.against(may_rewind=True) == []


async def test_what_a_failover_may_forget_is_counted_and_every_session_goes_on(
    tmp_path: Path, seed: int
) -> None:
    kind = SERVERS[seed % len(SERVERS)]
    report = await sentinel_failovers(kind, tmp_path, seed=seed, times=1, durable=False, say=print)
    print(kind, report)  # noqa: T201 - shown with a failure
    assert report.ended + len(report.lost) == report.accepted
    assert report.against(may_lose=True) == []


async def test_a_cluster_loses_a_master_and_moves_slots_while_work_goes_on(
    tmp_path: Path, seed: int
) -> None:
    """No follower is told of an error: it pauses, and goes on."""
    kind = SERVERS[seed % len(SERVERS)]
    report = await cluster_failovers(kind, tmp_path, seed=seed, times=1, say=print)
    print(kind, report)  # noqa: T201 - shown with a failure
    assert report.tool_runs > 5
    assert report.against(may_rewind=True) == []
