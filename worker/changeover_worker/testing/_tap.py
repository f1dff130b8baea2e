"""One worker's way to the store: every call is counted here, and one of them is disturbed.

The tap sits in the executor, below everything that a worker knows of Redis, so that no call can
pass it by.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any, Protocol, TypeVar

from changeover_shared._errors import StoreUnavailable
from changeover_shared._server.reach import Reached
from changeover_shared._store.calls import Call
from changeover_shared._store.clock import ServerClock
from changeover_shared._store.executor import Executor
from changeover_shared._store.scripts import Script, Value
from changeover_shared._store.servers import Servers
from changeover_worker.testing._cases import RING, Case, How, Where

T = TypeVar("T")


class Life(Enum):
    """What has become of a worker."""

    RUNS = "runs"
    STANDS = "stands still"
    GONE = "gone"
    THAWED = "goes on after it stood still"


class Onlooker(Protocol):
    """Who is told of calls."""

    async def turn_of(self) -> None:
        """Return when the worker may make its next call."""

    async def answered(self, script: Script, args: Sequence[Value], reply: list[Any]) -> None:
        """A script has run and answered `reply`, its word first."""


class Tap:
    """Counts the calls of one worker, and stops the worker where its case says."""

    def __init__(self, onlooker: Onlooker, case: Case | None = None) -> None:
        self.calls: list[str] = []
        """Every call in the order in which it was made."""
        self.life = Life.RUNS
        self.reached = False
        """The call of the case has come."""
        self.struck = asyncio.Event()
        """Set when the worker has stopped there."""
        self.late: Callable[[], Awaitable[object]] | None = None
        """The call that it has in flight, or stands before."""
        self.answers: list[Any] = []
        """With a lost reply: what the call answered, and then what its repeat answered."""
        self.turns: dict[str, str] = {}
        """The turn that the worker has last committed anything of, by session."""
        self._onlooker = onlooker
        self._case = case
        self._counts: Counter[str] = Counter()
        self._goes = asyncio.Event()
        self._goes.set()
        self._stops_at_repeat = False
        self._fate = Life.GONE if case is not None and case.how is How.KILL else Life.STANDS

    def thaw(self) -> None:
        """Let a worker that stood still go on."""
        self.life = Life.THAWED
        self._goes.set()

    async def through(self, name: str, send: Callable[[], Awaitable[T]]) -> T:
        """Make one call. Raises `StoreUnavailable` when its reply is lost, and `CancelledError`
        in a worker that is gone."""
        await self._onlooker.turn_of()
        await self._go()
        again = self._case is not None and self._case.script == name
        if again and self._stops_at_repeat:
            return await self._stopped_before(send)
        if again and len(self.answers) == 1:
            reply = await self._sent(send)
            self.answers.append(reply)
            return reply
        self._counts[name] += 1
        call = f"{name}#{self._counts[name]}"
        self.calls.append(call)
        if self._case is None or call != self._case.call:
            return await self._sent(send)
        self.reached = True
        return await self._disturbed(self._case, send)

    async def _disturbed(self, case: Case, send: Callable[[], Awaitable[T]]) -> T:
        if case.where is Where.BEFORE:
            return await self._stopped_before(send)
        reply = await self._sent(send)
        if case.where is Where.LOST:
            if case.how is How.LIVE:
                self.answers.append(reply)
            else:
                self._stops_at_repeat = True
            raise StoreUnavailable(reason="the sweep lost the reply")
        self._strike()
        await self._go()
        return reply

    async def _stopped_before(self, send: Callable[[], Awaitable[T]]) -> T:
        in_flight = self._stops_at_repeat or self._fate is Life.STANDS
        self._stops_at_repeat = False
        self._strike(send if in_flight else None)
        await self._go()
        return await self._sent(send)

    async def _sent(self, send: Callable[[], Awaitable[T]]) -> T:
        reply = await send()
        # What was in flight when the worker stopped has reached Redis, not the worker.
        await self._go()
        return reply

    def _strike(self, in_flight: Callable[[], Awaitable[object]] | None = None) -> None:
        self.life = self._fate
        self.late = in_flight
        if self.life is Life.STANDS:
            self._goes.clear()
        self.struck.set()

    async def _go(self) -> None:
        await self._goes.wait()
        if self.life is Life.GONE:
            raise asyncio.CancelledError


class ShiftedClock(ServerClock):
    """Redis's time, and what the sweep lets pass on top of it."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class TappedExecutor(Executor):
    """An executor whose calls go through a tap, once it has one."""

    def __init__(self, servers: Servers, *, where: str, reached: Reached | None = None) -> None:
        super().__init__(servers, where=where, reached=reached)
        self.clock: ShiftedClock = ShiftedClock()
        self.tap: Tap | None = None
        self._onlooker: Onlooker | None = None

    def attach(self, tap: Tap, onlooker: Onlooker) -> None:
        """Send every call from here on through `tap`, and tell `onlooker` of the scripts."""
        self.tap = tap
        self._onlooker = onlooker

    async def run(self, call: Call) -> list[Any]:
        script = call.script
        count, flat = call.arguments("")
        args = flat[count:]
        if self.tap is not None and script.name == "commit":
            session, turn = (args[script.header.args.index(n)] for n in ("session", "turn"))
            self.tap.turns[str(session)] = str(turn)

        async def send() -> list[Any]:
            reply = await super(TappedExecutor, self).run(call)
            if self._onlooker is not None:
                await self._onlooker.answered(script, args, reply)
            return reply

        return await self._through(script.name, send)

    async def command(self, *args: Value) -> Any:
        if self.tap is None:
            return await super().command(*args)
        return await self._through(_named(args), lambda: super(TappedExecutor, self).command(*args))

    async def commands(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        if self.tap is None:
            return await super().commands(commands)
        return await self._through(
            _named(commands[0]), lambda: super(TappedExecutor, self).commands(commands)
        )

    async def _through(self, name: str, send: Callable[[], Awaitable[T]]) -> T:
        if self.tap is None:
            return await send()
        return await self.tap.through(name, send)


def _named(command: Sequence[Value]) -> str:
    """What a plain command is called among the calls: what it reads, or `ring`."""
    if command[0] == "ZADD":
        return RING
    return f"read_{str(command[1]).rpartition(':')[2]}"
