"""Processes that a measurement starts, and what Linux says of them in /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP

ROOT = Path(__file__).parent.parent
_TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    """A child process, killed when its measurement ends."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    @property
    def cpu_s(self) -> float:
        """User and system time so far, of all its threads; in steps of 10 ms."""
        stat = (self._proc / "stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / _TICKS

    @property
    def rss_bytes(self) -> int:
        """Resident memory now."""
        for line in (self._proc / "status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"process {self.pid} has ended")

    def check_alive(self) -> None:
        """Raise when it has ended by itself."""
        code = self._child.poll()
        if code is not None:
            raise RuntimeError(f"process {self.pid} ended with {code} in mid-measurement")

    def freeze(self) -> None:
        """Stop it where it stands."""
        self._child.send_signal(SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._child.send_signal(SIGCONT)

    def first_line(self) -> str:
        """What it says first on its standard output."""
        assert self._child.stdout is not None
        return self._child.stdout.readline().decode().strip()

    @property
    def _proc(self) -> Path:
        return Path("/proc") / str(self.pid)


@contextmanager
def running(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Iterator[Process]:
    """Run a command from the repository's root; what it says on stderr goes to `log`."""
    errors = subprocess.DEVNULL if log is None else log.open("ab")
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
    )
    try:
        yield Process(child)
    finally:
        child.kill()
        child.communicate()
        if log is not None and not isinstance(errors, int):
            errors.close()


def python(module: str, *args: str) -> list[str]:
    """The command that runs a module with this interpreter."""
    return [sys.executable, "-m", module, *args]
