"""What a service manager is told, over a real socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from changeover_worker._process.service import ServiceManager, Standing


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(10)
        yield listening


def told(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().splitlines()


def environment(manager: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": manager.getsockname(), "PATH": "/bin", **more}


def test_it_is_told_of_the_start_and_the_end(manager: socket.socket) -> None:
    service = ServiceManager.of(environment(manager))
    service.ready("200 slots")
    assert told(manager) == ["READY=1", "STATUS=200 slots"]
    service.stopping("draining 3 of 17")
    assert told(manager) == [
        "STOPPING=1",
        "STATUS=draining 3 of 17",
        "EXTEND_TIMEOUT_USEC=5000000",
    ]


def test_an_abstract_name_is_a_socket_too() -> None:
    name = f"changeover-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(10)
        ServiceManager(f"@{name}").ready("")
        assert told(listening) == ["READY=1", "STATUS="]


def test_the_watchdog_is_fed_where_it_is_asked_for(manager: socket.socket) -> None:
    for more, fed in (
        ({}, False),
        ({"WATCHDOG_USEC": "0"}, False),
        ({"WATCHDOG_USEC": "30000000"}, True),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, True),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, False),
    ):
        service = ServiceManager.of(environment(manager, **more))
        service.alive()
        service.ready("next")
        assert told(manager) == (["WATCHDOG=1"] if fed else ["READY=1", "STATUS=next"])
        if fed:
            told(manager)


def test_what_tools_start_does_not_speak_for_the_worker(manager: socket.socket) -> None:
    found = environment(manager, WATCHDOG_USEC="1", WATCHDOG_PID="1")
    ServiceManager.of(found)
    assert found == {"PATH": "/bin"}


def test_without_a_manager_nothing_happens(tmp_path: Path) -> None:
    for service in (ServiceManager.of({}), ServiceManager(str(tmp_path / "gone"), watched=True)):
        service.ready("")
        service.stopping("")
        service.alive()
    assert list(tmp_path.iterdir()) == []


def test_a_manager_that_does_not_read_holds_nobody_up(manager: socket.socket) -> None:
    service = ServiceManager.of(environment(manager))
    for _ in range(1000):  # Many more than a socket's buffer takes.
        service.ready("x" * 1000)
    assert told(manager)[0] == "READY=1"


async def test_the_watchdog_is_not_fed_by_what_does_not_live(manager: socket.socket) -> None:
    service = ServiceManager.of(environment(manager, WATCHDOG_USEC="30000000"))
    standings = [
        Standing(live=False, ready=False, doing="starting"),
        Standing(live=False, ready=True, doing="blocked"),
        Standing(live=True, ready=True, doing="works"),
    ]
    looks = iter(standings)

    async def look() -> Standing:
        found = next(looks, None)
        if found is None:
            raise EOFError
        return found

    with pytest.MonkeyPatch.context() as patch, pytest.raises(EOFError):
        patch.setattr("changeover_worker._process.service.TELL_S", 0.0)
        await service.keep_telling(look)
    assert told(manager) == ["READY=1", "STATUS=blocked"]
    assert told(manager) == ["WATCHDOG=1"]
