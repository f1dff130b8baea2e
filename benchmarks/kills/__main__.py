"""`python -m benchmarks.kills [--peer NAME]... [--seconds 60] [--patience 120] [--seed N]`.

Three workers, two jobs a second that take a second each, and every three seconds one worker and
all of its processes get SIGKILL; half a second later another one is started. Each peer in turn,
on a fresh server, with the same seed: the same kills at the same times.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from benchmarks._server import server, version
from benchmarks.kills.peers import JOBS, PEERS, Peer
from benchmarks.kills.verdict import Kill, Verdict, judge, read_marks

WORKERS = 3
EVERY_S = 3.0
REPLACED_S = 0.5
JOBS_PER_S = 2.0
WARM_S = 5.0
"""What a peer is given to start; the first kill comes after that."""
_HEADS = ("peer", "settings", "accepted", "lost", "repeated", "interrupted")
_HEADS_AFTER = ("goes on, median", "longest", "never")


class Workers:
    """The workers of a peer, each with all the processes that it starts."""

    def __init__(self, peer: Peer, environment: dict[str, str], log: Path) -> None:
        self._command = [w.format(url=environment["KILLS_URL"]) for w in peer.worker_command]
        self._environment = environment
        self._log = log
        self._running: list[subprocess.Popen[bytes] | None] = [None] * WORKERS

    def start(self, number: int) -> None:
        """Start one."""
        with self._log.open("ab") as log:
            self._running[number] = subprocess.Popen(
                self._command,
                cwd=JOBS,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, number: int) -> Kill:
        """Kill one, and everything that it has started."""
        worker = self._running[number]
        assert worker is not None
        pids = frozenset(_tree(worker.pid))
        at = time.time()
        for pid in sorted(pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.wait()
        return Kill(at, pids)

    def end(self) -> None:
        """Kill all."""
        for number, worker in enumerate(self._running):
            if worker is not None and worker.poll() is None:
                self.kill(number)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the peers one after the other and print one table."""
    given = _parser().parse_args(arguments)
    chosen = [peer for peer in PEERS if not given.peer or peer.name in given.peer]
    seed = random.randrange(2**32) if given.seed is None else given.seed
    for peer in chosen:
        peer.install()
    lines: list[tuple[str, ...]] = [(*_HEADS, *_HEADS_AFTER)]
    for peer in chosen:
        print(f"{peer.name} {peer.version()} ...", file=sys.stderr, flush=True)
        found = run(peer, seconds=given.seconds, patience_s=given.patience, seed=seed)
        lines.append((f"{peer.name} {peer.version()}", peer.settings, *found.line()))
    print(f"{version()}; seed {seed}; {given.seconds} s of kills, then up to {given.patience} s\n")
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    for number, line in enumerate(lines):
        print("| " + " | ".join(map(str.ljust, line, widths)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def run(peer: Peer, *, seconds: float, patience_s: float, seed: int) -> Verdict:
    """Drive one peer through the kills, and wait for what it still ends."""
    with ExitStack() as stack:
        found = stack.enter_context(server())
        marks = found.directory / "marks"
        marks.touch()
        environment = {
            **os.environ,
            **peer.environment,
            "KILLS_URL": found.url,
            "CHANGEOVER_REDIS_URL": found.url,
            "KILLS_MARKS": str(marks),
            "PATH": f"{peer.programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(JOBS), *_own_paths(peer)]),
        }
        log = Path(tempfile.gettempdir()) / f"changeover-kills-{peer.name}.log"
        log.write_bytes(b"")
        workers = Workers(peer, environment, log)
        stack.callback(workers.end)
        for number in range(WORKERS):
            workers.start(number)
        producer = _producer(peer, environment)
        stack.callback(producer.communicate)
        stack.callback(producer.kill)
        accepted, kills = _storm(workers, producer, seconds, random.Random(seed))
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            verdict = judge(accepted, read_marks(marks.read_text().splitlines()), kills)
            if not verdict.lost:
                break
            time.sleep(0.2)
        # Whatever runs a second time still shows itself.
        time.sleep(min(5.0, patience_s))
        return judge(accepted, read_marks(marks.read_text().splitlines()), kills)


def _storm(
    workers: Workers, producer: subprocess.Popen[str], seconds: float, chance: random.Random
) -> tuple[list[str], list[Kill]]:
    assert producer.stdin is not None
    assert producer.stdout is not None
    began = time.monotonic()
    accepted: list[str] = []
    kills: list[Kill] = []
    starts: list[tuple[float, int]] = []
    next_kill = WARM_S
    while (now := time.monotonic() - began) < seconds + WARM_S:
        if len(accepted) <= now * JOBS_PER_S:
            producer.stdin.write(f"j{len(accepted)}\n")
            producer.stdin.flush()
            accepted.append(producer.stdout.readline().strip())
        if now >= next_kill:
            number = chance.randrange(WORKERS)
            if not any(number == due for _, due in starts):
                kills.append(workers.kill(number))
                starts.append((now + REPLACED_S, number))
            next_kill += EVERY_S * chance.uniform(0.5, 1.5)
        for due, number in [one for one in starts if one[0] <= now]:
            workers.start(number)
            starts.remove((due, number))
        time.sleep(0.01)
    for _, number in starts:
        workers.start(number)
    return accepted, kills


def _producer(peer: Peer, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        peer.producer_command,
        cwd=JOBS,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _own_paths(peer: Peer) -> list[str]:
    """What this environment finds without being told, where the peer runs in it."""
    return [] if peer.packages else [path for path in sys.path if path]


def _tree(pid: int) -> list[int]:
    """A process and all that it has started, by /proc."""
    found = [pid]
    for one in found:
        with suppress(FileNotFoundError, ProcessLookupError):
            for thread in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills")
    names = [peer.name for peer in PEERS]
    parser.add_argument("--peer", action="append", choices=names, help="may be repeated")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--patience", type=float, default=120.0)
    parser.add_argument("--seed", type=int)
    return parser


if __name__ == "__main__":
    main()
