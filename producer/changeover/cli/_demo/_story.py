"""What is told of an act while it happens, line by line."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from changeover.cli._demo._fleet import Worker
from changeover.cli._output import say, shown

_WIDTH = 108
_TEXT_AT = 15
_COMMITTED_AT = 88


class Story:
    """Writes the lines of an act to stdout, unless it is `silent`."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent

    def opening(self, server: str, *workers: Worker) -> None:
        """The fleet."""
        who = " · ".join(f"worker {worker.name} pid {worker.pid}" for worker in workers)
        self._line(f"{server} · {who} · scripted model, no API key")

    def user(self, text: str) -> None:
        """What the user says."""
        self._line(f"{'you':<{_TEXT_AT}}{text}")

    def worker(
        self, worker: Worker, fence: int, text: str, *, committed: int | None = None
    ) -> None:
        """What a worker does under its fence, with the event that made it durable."""
        line = f"{f'{worker.name}  fence {fence}':<{_TEXT_AT}}{shown(text)}"
        if committed is not None:
            line = f"{line:<{_COMMITTED_AT}} committed, seq {committed}"
        self._line(line)

    def signal(self, text: str) -> None:
        """What is done to a worker from outside."""
        self._line(f"-- {text} ".ljust(_WIDTH, "-"), style="bold red")

    def verdict(self, kept: str, broken: tuple[str, ...]) -> None:
        """What was checked in Redis."""
        if kept:
            self._line(kept, style="bold")
        for wrong in broken:
            self._line(f"BROKEN  {wrong}", style="bold red")

    def next(self, session_id: str, acts: str) -> None:
        """Where to go from here."""
        command = _command()
        self._line(
            f"next:  {command} follow {session_id} --from start  ·  "
            f"{command} explain {session_id}  ·  {command} demo --act {acts}"
        )

    def _line(self, text: str, *, style: str = "") -> None:
        if not self._silent:
            say(text, style=style)


def _command() -> str:
    """What a person types from here to run this very command line."""
    if shutil.which("changeover"):
        return "changeover"
    path = Path(sys.argv[0])
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
