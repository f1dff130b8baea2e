"""`python -m benchmarks [--quick] [--only NAME] [--runs N] [--json FILE]`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from benchmarks._plan import Measurement, Scale, Values
from benchmarks._server import version
from benchmarks._table import table
from benchmarks.burst import BURST
from benchmarks.commit_cost import COMMIT_COST
from benchmarks.drain import DRAIN, DRAIN_AOF
from benchmarks.encryption import ENCRYPTION
from benchmarks.fairness import FAIRNESS
from benchmarks.idle import IDLE
from benchmarks.interrupt import INTERRUPT
from benchmarks.latency import LATENCY
from benchmarks.many_workers import MANY_WORKERS
from benchmarks.memory import MEMORY
from benchmarks.submit import SUBMIT
from benchmarks.waiting import WAITING, WAITING_HTTP

MEASUREMENTS = (
    SUBMIT,
    DRAIN,
    DRAIN_AOF,
    LATENCY,
    INTERRUPT,
    IDLE,
    MANY_WORKERS,
    BURST,
    FAIRNESS,
    MEMORY,
    WAITING,
    WAITING_HTTP,
    COMMIT_COST,
    ENCRYPTION,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print one table; what misses its goal is printed like the rest."""
    given = _parser().parse_args(arguments)
    chosen = [one for one in MEASUREMENTS if not given.only or one.name in given.only]
    _allow_many_files()
    began = time.monotonic()
    runs = asyncio.run(
        _measure(chosen, Scale(given.quick), given.runs or (1 if given.quick else 3))
    )
    machine = _machine()
    _say(f"\n{machine}; {time.monotonic() - began:.0f} s\n\n{table(chosen, runs)}", sys.stdout)
    if given.json:
        raw = {"machine": machine, "quick": given.quick, "runs": runs}
        given.json.write_text(json.dumps(raw, indent=2) + "\n")


async def _measure(
    chosen: Sequence[Measurement], scale: Scale, runs: int
) -> dict[str, list[Values]]:
    """All measurements once, then all again: a noisy minute does not hit one of them alone."""
    found: dict[str, list[Values]] = {one.name: [] for one in chosen}
    for number in range(1, runs + 1):
        for one in chosen:
            _say(f"run {number} of {runs}: {one.name}", sys.stderr)
            found[one.name].append(await one.run(scale))
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure speed and memory on this machine."
    )
    names = [one.name for one in MEASUREMENTS]
    parser.add_argument("--quick", action="store_true", help="small sizes, one run: does it work?")
    parser.add_argument("--only", action="append", choices=names, help="may be repeated")
    parser.add_argument("--runs", type=int, help="how often each is measured [3]")
    parser.add_argument("--json", type=Path, help="write the numbers of every run to a file")
    return parser


def _machine() -> str:
    cores = len(os.sched_getaffinity(0))
    return f"{version()}, Python {platform.python_version()}, {platform.system()}, {cores} cores"


def _allow_many_files() -> None:
    """A thousand sessions over HTTP are a thousand sockets, in the worker and in the server."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _say(line: str, out: TextIO) -> None:
    out.write(f"{line}\n")
    out.flush()


if __name__ == "__main__":
    main()
