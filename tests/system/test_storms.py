"""A fleet at work lives through failures of its Redis: no worker dies, none would be killed by a
liveness probe, what was acknowledged ends exactly once, no tool that is `once` runs twice, and no
follower misses anything. `make chaos` has the same storms for longer."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from changeover_shared._store.keys import Keys
from tests.chaos.storms import STORMS, rage_of
from tests.support.nodes import running_node
from tests.support.servers import SERVERS
from tests.support.storms import fleet_at_work

pytestmark = pytest.mark.timeout(180)

PAST_LEASE_S = 7.0
"""Longer than the leases of six seconds."""


@pytest.fixture
def seed() -> int:
    """Printed when a test fails."""
    chosen = int(os.environ.get("SEED") or random.randrange(10**6))
    print(f"seed {chosen}")  # noqa: T201 - shown with a failure
    return chosen


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        pytest.param("aof-always", 5.0, id="killed, with a file that is always written"),
        pytest.param("aof-everysec", 3.0, id="killed, with a file that is written each second"),
        pytest.param("pause-past-lease", 0.0, id="frozen for longer than a lease"),
        pytest.param("client-pause", 0.0, id="holding every command back"),
        pytest.param("maxmemory", 0.0, id="full"),
        pytest.param("kills", 8.0, id="cutting every connection once a second"),
    ],
)
async def test_the_fleet_outlives_a_redis_that_is(
    name: str, seconds: float, tmp_path: Path, seed: int
) -> None:
    storm = STORMS[name]
    # One kind of server a run: which one is up to the seed.
    kind = SERVERS[seed % len(SERVERS)]
    report = await rage_of(storm, kind, tmp_path, seed=seed, seconds=seconds, pause_s=PAST_LEASE_S)
    print(kind, report)  # noqa: T201 - shown with a failure
    assert report.tool_runs > 5
    assert report.against(may_lose=storm.may_lose) == []


async def test_the_report_tells_what_is_lost_what_ran_twice_and_who_was_not_live(
    tmp_path: Path, seed: int
) -> None:
    with running_node() as server:
        async with fleet_at_work(server.url, tmp_path, seed=seed, workers=1) as fleet:
            await fleet.accepts(20)
            report = await fleet.settled()
            assert report.against() == []
            assert report.ended == report.accepted == len(fleet.sent)

            gone = fleet.sent[0]
            receipts = (
                Keys(fleet.settings.prefix, fleet.settings.partitions)
                .of(gone.session)
                .session(gone.session, "receipts")
            )
            server.client.hdel(receipts, gone.id)
            ran = fleet.tool_log.read_text("utf-8").splitlines()[0]
            with fleet.tool_log.open("a") as log:
                log.write(f"{ran}\n")
            with fleet.workers[0].log.open("a") as log:
                log.write('{"event": "not_live", "reason": "as told"}\n')
            report = await fleet.settled()
            assert report.lost == (gone,)
            assert report.twice == (ran.split()[0],)
            assert report.not_live == ("w0: as told",)
            assert len(report.against()) > len(report.against(may_lose=True)) > 0
