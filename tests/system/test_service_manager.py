"""What a service manager hears of real workers: when they serve, that they live, what they wait
for while they drain."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.processes import Process, processes
from tests.support.servers import running_server

APP = "tests.support.scripted_app:app"
WITHIN_S = 30.0


class Manager:
    """Listens as systemd does."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.settimeout(WITHIN_S)

    def hear(self, wanted: Callable[[list[str]], bool]) -> list[list[str]]:
        """Everything that is said, up to what is wanted."""
        heard: list[list[str]] = []
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            heard.append(self._socket.recv(4096).decode().splitlines())
            if wanted(heard[-1]):
                return heard
        raise AssertionError(f"never said; {heard}")

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    found = Manager(tmp_path / "notify")
    yield found
    found.close()


@pytest.fixture
def start(tmp_path: Path, manager: Manager) -> Iterator[Callable[..., Process]]:
    with running_server() as url, processes(tmp_path, {"CHANGEOVER_REDIS_URL": url}) as running:

        def start(*options: str, app: str = APP) -> Process:
            return running.python(
                "w", "-m", "changeover_worker", app, *options,
                NOTIFY_SOCKET=manager.path, WATCHDOG_USEC="30000000", URL=url,
            )  # fmt: skip

        yield start


def is_ready(told: list[str]) -> bool:
    return told[0] == "READY=1"


def lives(told: list[str]) -> bool:
    return told == ["WATCHDOG=1"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        pytest.param(("-c", "7"), "0 of 7 slots taken", id="one process"),
        pytest.param(("-p", "2"), "2 workers", id="a parent"),
    ],
)
def test_it_hears_that_they_serve_live_and_drain(
    start: Callable[..., Process], manager: Manager, options: tuple[str, ...], status: str
) -> None:
    worker = start(*options)
    heard = manager.hear(is_ready)
    assert heard[-1] == ["READY=1", f"STATUS={status}"]
    assert worker.text.count("worker_ready") == (2 if options[0] == "-p" else 1)
    manager.hear(lives)
    worker.send(signal.SIGTERM)
    (*_, told) = manager.hear(lambda told: told[0] == "STOPPING=1")
    assert told[1].startswith("STATUS=draining")
    assert told[2].startswith("EXTEND_TIMEOUT_USEC=")
    assert worker.popen.wait(WITHIN_S) == 0
