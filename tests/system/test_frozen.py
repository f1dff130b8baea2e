from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.frozen import freeze
from tests.support.servers import SERVERS


@pytest.mark.timeout(120)
async def test_no_write_of_a_worker_that_was_frozen_is_accepted_after_its_sessions_were_taken(
    tmp_path: Path,
) -> None:
    """Its leases ran out or were ended while it slept; awake again it finds out, changes nothing,
    and goes on as the worker that it is. `make chaos` does so 200 times."""
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    tally = await freeze(10, SERVERS[seed % len(SERVERS)], tmp_path, seed=seed)
    print(f"seed {seed}: {tally}")  # noqa: T201 - shown with a failure
    assert tally.broken == []
    assert tally.noticed.total() >= 10
