"""`make chaos`: sweeps scenarios on real servers, kills, freezes and drains real workers while work
comes in, has Redis itself killed, frozen, filled and cut off, then all of this at once, then
freezes one worker 200 times while its sessions are taken, and checks the promises.

Each part but the last is bounded by time (the sweeps per server, and each storm by itself), all are
seeded; prints each blow as it falls, and exits 1 with every broken promise. `--storm aof` runs
nothing but the storms whose name begins so.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from changeover import SyncClient
from changeover_shared._settings import read_settings
from changeover_shared._store.sync_store import SyncStore
from tests.chaos.everything import rage_with_everything
from tests.chaos.failovers import fail_over_all
from tests.chaos.frozen import freeze_often
from tests.chaos.replacements import replace_workers
from tests.chaos.storms import STORMS, named, storm_all
from tests.chaos.sweeps import sweep_all
from tests.support.main_job import ended, load, start_worker, supplier
from tests.support.processes import Process, Processes, processes, wait_until
from tests.support.promises import Sent, violations
from tests.support.servers import flush_scripts, free_port, running_server
from tests.support.traced_tool import runs_in

WORKERS = 3
FREEZE_S = 4.5
"""Longer than the workers' lease of 3 s."""
FIRST_START_S = 2.0
FROZEN = "frozen"
"""The storm that strikes a worker, not Redis: it is frozen while its sessions are taken."""
FREEZES = 200
EVERYTHING = "everything"
"""All faults at once."""
FAILOVERS = "failovers"
"""The storm over a Sentinel group, with replicas waited for and without, and over a Cluster."""
TIMES = 10
"""How many failovers each of them has."""
REPLACEMENTS = "replacements"
"""The storm that replaces workers while sessions stream."""
REPLACED = 30


class Fleet:
    """Workers that come back whatever happens to them."""

    def __init__(self, running: Processes, model: str, tool_log: Path, url: str) -> None:
        self._running = running
        self._model = model
        self._tool_log = tool_log
        self._url = url
        self._count = 0
        self.workers = [self._start() for _ in range(WORKERS)]

    def _start(self) -> Process:
        self._count += 1
        return start_worker(self._running, f"w{self._count}", self._model, self._tool_log)

    def strike(self, chance: random.Random) -> str:
        """Do something bad to a random worker, and replace it if it is gone."""
        slot = chance.randrange(len(self.workers))
        victim = self.workers[slot]
        blow = chance.choice(("kill", "kill", "freeze", "drain", "forget the scripts"))
        match blow:
            case "kill":
                victim.kill()
                self.workers[slot] = self._start()
            case "drain":
                victim.send(signal.SIGTERM)
                self.workers[slot] = self._start()
            case "freeze":
                victim.send(signal.SIGSTOP)
                time.sleep(FREEZE_S)
                victim.send(signal.SIGCONT)
            case _:
                flush_scripts(self._url)
        return f"{blow} {victim.name}"


def rage(seconds: float, seed: int, directory: Path) -> list[str]:
    """Run the fleet for a while; the promises that were broken."""
    chance = random.Random(seed)
    tool_log = directory / "tools.log"
    sent: list[Sent] = []
    supply = iter(load(20_000, seed=seed))
    with running_server() as url, processes(directory, {"CHANGEOVER_REDIS_URL": url}) as running:
        fleet = Fleet(running, supplier(running, free_port()), tool_log, url)
        store = SyncStore.open(url, read_settings())
        with SyncClient(url) as client, closing(store):
            until = time.monotonic() + seconds
            next_blow = time.monotonic() + FIRST_START_S
            blows = 0
            while time.monotonic() < until:
                message = next(supply, None)
                if message is not None:
                    client.submit(message.session, message.text, id=message.id)
                    sent.append(message)
                time.sleep(chance.uniform(0, 0.04))
                if time.monotonic() > next_blow:
                    say(f"{len(sent):6} sent  {ended(store, sent):6} ended  {fleet.strike(chance)}")
                    blows += 1
                    next_blow = time.monotonic() + chance.uniform(0.5, 2.5)
            wait_until(lambda: ended(store, sent) == len(sent), "every ending", within_s=120)
            found = violations(client, sent)
    runs = runs_in(tool_log)
    found += [f"{key} is `once` and ran {n} times" for key, n in runs.items() if n > 1]
    say(f"{len(sent)} submissions, {blows} blows, {sum(runs.values())} tool runs")
    return found


def say(line: str) -> None:
    """Print at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def storms_of(name: str) -> list[str]:
    """The storms that an option names."""
    found = [name] if name in (FROZEN, FAILOVERS, EVERYTHING, REPLACEMENTS) else named(name)
    if not found:
        raise argparse.ArgumentTypeError(f"no storm is called {name!r}")
    return found


def main() -> int:
    """Parse, rage, report."""
    parser = argparse.ArgumentParser(prog="make chaos")
    known = [*STORMS, EVERYTHING, FROZEN, FAILOVERS, REPLACEMENTS]
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--storm", type=storms_of, action="extend", default=[], help=", ".join(known)
    )
    options = parser.parse_args()
    say(f"seed {options.seed}, {options.seconds:g} s")
    found: list[str] = []
    if not options.storm:
        with tempfile.TemporaryDirectory(prefix="changeover-chaos-") as directory:
            found += sweep_all(options.seconds, options.seed, say)
            found += rage(options.seconds, options.seed, Path(directory))
    wanted = options.storm or known
    found += storm_all([n for n in wanted if n in STORMS], options.seconds, options.seed, say)
    if EVERYTHING in wanted:
        found += rage_with_everything(options.seconds, options.seed, say)
    if FROZEN in wanted:
        found += freeze_often(FREEZES, options.seed, say)
    if FAILOVERS in wanted:
        found += fail_over_all(TIMES, options.seed, say)
    if REPLACEMENTS in wanted:
        found += replace_workers(REPLACED, options.seed, say)
    for line in found:
        say(f"BROKEN {line}")
    say("every promise held" if not found else f"{len(found)} broken promises")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
