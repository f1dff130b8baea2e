"""A process on a terminal of its own: what it draws, and keys that somebody presses."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.support.processes import ROOT

_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_HOME = "\x1b[H"


def _without_size() -> dict[str, str]:
    """The environment; who runs tests side by side tells them how wide their own terminal is."""
    return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}


class Terminal:
    """A pseudo-terminal with one process."""

    def __init__(self, command: list[str], environment: Mapping[str, str], *, columns: int) -> None:
        self._master, self.slave = pty.openpty()
        self.resize(columns, 24)
        self.before = self.attributes()
        self._seen = b""
        self.process = subprocess.Popen(
            command,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            cwd=ROOT,
            env={**_without_size(), "TERM": "xterm-256color", **environment},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """Everything that was written, with its control codes."""
        return self._seen.decode("utf-8", errors="replace")

    @property
    def screen(self) -> list[str]:
        """The lines of what was drawn last from the upper left corner on."""
        last = self.text.rpartition(_HOME)[2]
        return [line.rstrip() for line in _CODES.sub("", last).replace("\r", "").split("\n")]

    def attributes(self) -> list[Any]:
        """How the terminal is set: what is echoed, which keys are signals."""
        return termios.tcgetattr(self.slave)

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._master, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Make it as large; its process is told."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        """Kill what still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
        os.close(self.slave)
        self._reader.join(10)
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                more = os.read(self._master, 65_536)
            except OSError:
                return
            if not more:
                return
            self._seen += more


@contextmanager
def on_terminal(
    *command: str, environment: Mapping[str, str], columns: int = 100
) -> Iterator[Terminal]:
    """A process on a terminal, gone afterwards."""
    terminal = Terminal(list(command), environment, columns=columns)
    try:
        yield terminal
    finally:
        terminal.close()
