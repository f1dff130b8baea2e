"""One held session, seen from two sides: the keeper's thread and the loop that runs it.

The keeper tells (`alert`, `lose`, `drain`, `drain_now`, from any thread); the runner looks
(`ctl_epoch`, `lost`, `drain_level`, on its loop) and names the tasks that a change must stop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from changeover_shared._errors import LeaseError
from changeover_shared._store.records import Lease


class Drain(IntEnum):
    """How urgently the session is wanted elsewhere; it only rises."""

    NO = 0
    AT_BOUNDARY = 1
    """Hand off at the next step boundary."""
    NOW = 2
    """Stop the running step and hand off."""


class Held:
    """The right to run one session, and what has been said about it since it was granted.

    Made on the loop that runs the session. A call that comes after the loop has closed, or after
    the session was given up, does nothing.
    """

    __slots__ = (
        "_loop",
        "_running",
        "_urgent",
        "_waiters",
        "ctl_epoch",
        "drain_level",
        "lease",
        "lost",
        "moving",
        "partition",
        "refused",
        "seen_epoch",
        "since",
        "trusted_until",
        "turn_ended",
    )

    def __init__(
        self,
        lease: Lease,
        partition: int,
        *,
        trusted_until: float,
        turn_ended: Callable[[], None] = lambda: None,
    ) -> None:
        self.lease = lease
        self.partition = partition
        self.turn_ended = turn_ended
        """To be called when a turn has ended."""
        self.trusted_until = trusted_until
        """Until when, on `time.monotonic()`, nobody else can hold the session."""
        self.ctl_epoch = 0
        """The newest control that anybody has told of; above `seen_epoch`, one waits."""
        self.seen_epoch = 0
        """The newest control that the runner has dealt with."""
        self.lost: LeaseError | None = None
        self.refused = ""
        """The script that refused a write, if that is how the loss was found out."""
        self.drain_level = Drain.NO
        self.moving = False
        """Whether another worker should have it after the running turn."""
        self.since = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._running: tuple[asyncio.Future[Any], ...] = ()
        self._waiters: set[asyncio.Future[None]] = set()
        self._urgent: Callable[[], None] | None = None

    def alert(self, ctl_epoch: int) -> None:
        """Say that a control waits: what runs is stopped. From any thread."""
        self._tell(lambda: self.note_control(ctl_epoch))

    def lose(self, why: LeaseError) -> None:
        """Say that the session is no longer ours: what runs is stopped, nothing more is
        written. From any thread."""
        self._tell(lambda: self.note_lost(why))

    def drain(self) -> None:
        """Ask for a hand-off at the next step boundary. From any thread."""
        self._tell(lambda: self._on_drain(Drain.AT_BOUNDARY))

    def drain_now(self) -> None:
        """Ask for a hand-off at once: the running step is given up. From any thread."""
        self._tell(lambda: self._on_drain(Drain.NOW))

    @property
    def interrupted(self) -> bool:
        """Whether a control waits that the runner has not dealt with."""
        return self.ctl_epoch > self.seen_epoch

    @property
    def stopped(self) -> bool:
        """Whether what runs has to stop, for whatever reason."""
        return self.lost is not None or self.drain_level is Drain.NOW or self.interrupted

    @property
    def leaving(self) -> bool:
        """Whether the session has to stop, or is wanted elsewhere at its next step boundary."""
        return self.stopped or self.drain_level is not Drain.NO

    async def changed_or(self, seconds: float | None) -> None:
        """Wait so long, None for ever, or until the session is `leaving`."""
        if self.leaving:
            return
        waiter = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait((waiter,), timeout=seconds)
        finally:
            self._waiters.discard(waiter)

    def note_control(self, ctl_epoch: int) -> None:
        """Say the same as `alert`, on the loop."""
        self.ctl_epoch = max(self.ctl_epoch, ctl_epoch)
        if self.interrupted:
            self._stop()

    def note_lost(self, why: LeaseError) -> None:
        """Say the same as `lose`, on the loop. The first reason stays."""
        self.lost = self.lost or why
        self._stop()

    def running(self, tasks: Iterable[asyncio.Future[Any]]) -> None:
        """Name what is cancelled when the session must stop; at once, if it must already."""
        self._running = tuple(tasks)
        if self.stopped:
            self._stop()

    def when_urgent(self, call: Callable[[], None]) -> None:
        """Have `call` called whenever the session must go at once: it is lost, or wanted elsewhere
        now. The newest call counts; it comes at once if that is so already."""
        self._urgent = call
        self._say_if_urgent()

    def _tell(self, change: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(change)
            except RuntimeError:  # the loop closed in between
                return

    def _on_drain(self, level: Drain) -> None:
        self.drain_level = max(self.drain_level, level)
        if level is Drain.NOW:
            self._stop()
        self._wake()

    def _stop(self) -> None:
        self._wake()
        self._say_if_urgent()
        for task in self._running:
            task.cancel()

    def _say_if_urgent(self) -> None:
        urgent = self.lost is not None or self.drain_level is Drain.NOW
        if urgent and self._urgent is not None:
            self._urgent()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
