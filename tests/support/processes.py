"""Processes of a system test: each has a log of its own, and is killed at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PYTHON = sys.executable
COMMAND = str(Path(PYTHON).with_name("changeover"))
"""The installed command line."""
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Process:
    """One process with its output in a file."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def text(self) -> str:
        """What it has written so far."""
        return self.log.read_text("utf-8", errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send a signal, to this process alone."""
        self.popen.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.popen.kill()
        self.popen.wait(10)


@dataclass
class Processes:
    """Starts processes that end with the test."""

    directory: Path
    environment: dict[str, str] = field(default_factory=dict)
    started: list[Process] = field(default_factory=list)

    def start(self, name: str, *command: str, **environment: str) -> Process:
        """Start a process; `environment` adds to the common one."""
        log = self.directory / f"{name}-{len(self.started)}.log"
        with log.open("wb") as out:
            popen = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, **self.environment, **environment},
                start_new_session=True,
            )
        process = Process(name, popen, log)
        self.started.append(process)
        return process

    def python(self, name: str, *args: str, **environment: str) -> Process:
        """Start this interpreter with `args`."""
        return self.start(name, PYTHON, *args, **environment)

    def close(self) -> None:
        """Kill what still runs, with its children."""
        for process in self.started:
            if process.popen.poll() is None:
                os.killpg(process.popen.pid, signal.SIGKILL)
                process.popen.wait(10)


@contextmanager
def processes(directory: Path, environment: Mapping[str, str]) -> Iterator[Processes]:
    """Processes that are gone afterwards."""
    running = Processes(directory, dict(environment))
    try:
        yield running
    finally:
        running.close()


def wait_until(
    holds: Callable[[], bool], description: str, *, within_s: float = 30.0, every_s: float = 0.02
) -> None:
    """Wait for a condition; the failure says what never happened."""
    deadline = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {within_s:g} s: {description} did not happen")
        time.sleep(every_s)
