"""What a service manager is told: systemd, or whoever else sets `NOTIFY_SOCKET` (sd_notify(3)).

Without one, nothing is sent. A manager that does not take what it is told is no reason for a worker
to stop: what cannot be sent is dropped.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass

EXTEND_S = 5.0
"""For how long a worker that hands off asks to be left alone, each time; it asks once a second."""

TELL_S = 1.0
"""How often it is told."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a process is."""

    live: bool
    ready: bool
    doing: str
    """What people are shown."""
    draining: bool = False


Look = Callable[[], Awaitable[Standing]]


class ServiceManager:
    """Tells the manager of this process how it is. From any thread."""

    def __init__(self, address: str | None = None, *, watched: bool = False) -> None:
        """`address` is a socket's path, or its abstract name after an `@`."""
        self._address = address
        self._watched = watched

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> ServiceManager:
        """The manager that an environment names. Its variables are taken away: what tools start
        must not speak for the worker."""
        address = environment.pop("NOTIFY_SOCKET", "")
        watched = environment.pop("WATCHDOG_USEC", "") not in ("", "0")
        for_process = environment.pop("WATCHDOG_PID", "")
        mine = for_process in ("", str(os.getpid()))
        return cls(address or None, watched=watched and mine)

    @property
    def listens(self) -> bool:
        """Whether there is one."""
        return self._address is not None

    async def keep_telling(self, look: Look) -> None:
        """Tell it once a second how the process is; never returns. The watchdog is fed from here,
        so the loop that runs this must be one that proves something by running."""
        was_ready = False
        while True:
            found = await look()
            if found.draining:
                self.stopping(found.doing)
            elif found.ready and not was_ready:
                was_ready = True
                self.ready(found.doing)
            if found.live:
                self.alive()
            await asyncio.sleep(TELL_S)

    def ready(self, status: str) -> None:
        """The start is over, and it succeeded."""
        self._tell("READY=1", f"STATUS={status}")

    def stopping(self, status: str) -> None:
        """It hands off, and needs a little longer; to be said again before `EXTEND_S` are over."""
        self._tell("STOPPING=1", f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={EXTEND_S * 1e6:.0f}")

    def alive(self) -> None:
        """It does its work; said no more, the manager restarts it."""
        if self._watched:
            self._tell("WATCHDOG=1")

    def _tell(self, *lines: str) -> None:
        if self._address is None:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.setblocking(False)  # The keeper's thread must not wait for a manager.
            channel.connect(address)
            channel.send("\n".join(lines).encode())
