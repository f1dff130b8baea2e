"""Every scenario of the sweep, on each kind of server that is installed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from changeover_worker.testing import sweep
from tests.support.scenarios import SCENARIOS
from tests.support.servers import SERVERS, running_server


def sweep_all(seconds: float, seed: int, say: Callable[[str], None]) -> list[str]:
    """The promises that were broken. Each scenario is swept once on each server; then, in the
    seed's order, with a successor that is stopped as well, while `seconds` are not over."""
    found: list[str] = []
    for kind in SERVERS:
        until = time.monotonic() + seconds
        names = random.Random(seed).sample(sorted(SCENARIOS), len(SCENARIOS))
        with running_server(kind) as url:
            for name in names:
                found += _swept(f"{kind}: {name}", name, url, twice=False, say=say)
            for count, name in enumerate(names):
                if time.monotonic() > until:
                    say(f"sweep on {kind}: {len(names) - count} not swept twice, time is over")
                    break
                found += _swept(f"{kind}: {name}, twice", name, url, twice=True, say=say)
    return found


def _swept(what: str, name: str, url: str, *, twice: bool, say: Callable[[str], None]) -> list[str]:
    scenario, app = SCENARIOS[name]
    try:
        report = asyncio.run(sweep(scenario, app, url=url, twice=twice))
    except AssertionError as failure:
        return [f"{what}: {failure}"]
    say(f"sweep on {what}: {report}")
    return []
