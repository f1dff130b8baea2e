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
    """The promises that were broken. The order is the seed's; after `seconds` on one server no
    further scenario is begun there."""
    found: list[str] = []
    for kind in SERVERS:
        until = time.monotonic() + seconds
        names = random.Random(seed).sample(sorted(SCENARIOS), len(SCENARIOS))
        with running_server(kind) as url:
            for count, name in enumerate(names):
                if count and time.monotonic() > until:
                    say(f"sweep on {kind}: {len(names) - count} scenarios left out, time is over")
                    break
                scenario, app = SCENARIOS[name]
                for twice in (False, True):
                    try:
                        report = asyncio.run(sweep(scenario, app, url=url, twice=twice))
                    except AssertionError as failure:
                        found.append(f"{kind}, {name}: {failure}")
                    else:
                        say(f"sweep on {kind}: {name}{', twice' * twice}: {report}")
    return found
