"""All faults at once, for a minute and a half: `make chaos STORM=everything` for longer, and with
workers of two commits."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from tests.chaos.everything import rage_of_everything
from tests.support.servers import SERVERS

SECONDS = 90.0


@pytest.mark.timeout(400)
async def test_nothing_is_lost_or_done_twice_whatever_happens_at_once(tmp_path: Path) -> None:
    """G1, G2, G3, G4, G5: no submission is lost or ends twice, no tool that is `once` runs twice,
    no follower misses an event, no refused write changes anything, no worker asks to be killed."""
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    told = [f"SEED={seed}"]
    kind = SERVERS[seed % len(SERVERS)]
    try:
        report, violations = await rage_of_everything(
            kind, tmp_path, seed=seed, seconds=SECONDS, say=told.append
        )
    finally:
        sys.stdout.write("\n".join(told) + "\n")
    assert report.tool_runs > 50
    assert [*report.against(), *violations] == []
