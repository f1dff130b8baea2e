"""Workers are replaced one after the other while people read: drained, or killed under a
supervisor.

Two hundred sessions stream all the time, each with a follower. Every replacement takes a worker
with all that it holds: by `Operator.drain` once its successor is there, or by SIGKILL, and its
supervisor starts another one. What a follower sees of it is the longest pause until its session
speaks again with its next worker; the model itself pauses for a quarter of a second before each
piece. The journal says by Redis's clock when each piece was written, so it can be told apart what
the fleet takes and what the one process with all followers does, which is also measured while
nothing is replaced. Leases are those of a real fleet, 30 s: a session that waited for one would be
seen at once.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from changeover import Client, Delta, Event, Operator, SyncClient, TurnCompleted, WorkerInfo
from changeover_shared._settings import Settings, read_settings
from changeover_shared._store.lease_store import LeaseStore
from tests.chaos.storms import Say
from tests.support.following import Seen
from tests.support.processes import Process, Processes, processes
from tests.support.promises import Sent, violations
from tests.support.servers import SERVERS, running_server
from tests.support.streaming_app import PIECE_S, TURN_S
from tests.support.working import eventually

SESSIONS = 200
SLOTS = 80
"""Of each of four workers: three of them hold all sessions."""
WAITING = 2
"""How many messages of a session are open at any time: it always has a next turn."""
SETTLED_S = 45.0
QUIET_S = 3.0
"""For how long the fleet is left alone before each replacement, to see what it pauses anyway."""
GOALS_S = {"drain": 1.0, "kill": 2.0}
"""The pause that 99 of 100 followers may see."""


class Pause(NamedTuple):
    """How long a session was silent, in seconds."""

    seen: float
    """As its follower saw it, in a process with two hundred of them."""
    written: float
    """By when Redis took what was said next."""


@dataclass
class Reader:
    """One session's follower, which also sends what is said next."""

    session: str
    rest_s: float
    """How long to wait before the first message, so that not all speak in time."""
    seen: Seen = field(default_factory=Seen)
    sent: list[Sent] = field(default_factory=list)
    times: list[tuple[float, Event]] = field(default_factory=list)
    stopping: bool = False

    async def read(self, client: Client) -> None:
        """Follow and send, until everything sent has ended and nothing more is wanted."""
        await asyncio.sleep(self.rest_s)
        async with asyncio.TaskGroup() as sending:
            for _ in range(WAITING):
                await self._send(client)
            left = WAITING
            async for event in client.follow(self.session, after=0):
                self.seen.note(event)
                self.times.append((time.monotonic(), event))
                if isinstance(event, TurnCompleted):
                    left -= 1
                    if not self.stopping:
                        # Beside the reading, which is what is measured.
                        sending.create_task(self._send(client))
                        left += 1
                    elif not left:
                        return

    def __str__(self) -> str:
        """Where it stands."""
        (_, last) = self.times[-1]
        return f"{self.session} after {len(self.sent)} messages at {last.seq} {last.type}"

    def paused(self, since: float) -> Pause:
        """The longest pause since a moment."""
        recent = [one for one in self.times if one[0] >= since]
        both = list(pairwise(recent))
        return Pause(
            max((after[0] - before[0] for before, after in both), default=0.0),
            max((after[1].at_ms - before[1].at_ms for before, after in both), default=0) / 1000,
        )

    def went_on(self, since: float) -> Pause | None:
        """The longest pause since a moment until the session spoke under another grant than it had
        then; None while it has not."""
        before = [one for one in self.times if one[0] < since]
        fence = max((event.fence for _, event in before), default=0)
        last_ms = before[-1][1].at_ms if before else 0
        seen, at, written = 0.0, since, 0.0
        for now, event in self.times[len(before) :]:
            seen, at = max(seen, now - at), now
            written = max(written, (event.at_ms - (last_ms or event.at_ms)) / 1000)
            last_ms = max(last_ms, event.at_ms)
            if event.fence > fence and isinstance(event, Delta):
                return Pause(seen, written)
        return None

    def forget(self, before: float) -> None:
        """Keep no times from before a moment but the newest one."""
        old = [one for one in self.times if one[0] < before]
        self.times = old[-1:] + [one for one in self.times if one[0] >= before]

    async def _send(self, client: Client) -> None:
        one = Sent(self.session, f"{self.session}:{len(self.sent)}", "go on")
        self.sent.append(one)
        await client.submit(one.session, one.text, agent="talker", id=one.id)


class Fleet:
    """Two workers that are replaced by drains, and two under a supervisor, which are killed."""

    def __init__(self, running: Processes, operator: Operator, store: LeaseStore) -> None:
        self._running = running
        self._store = store
        self._operator = operator
        self._count = 0
        self._single: list[Process] = []

    async def start(self) -> None:
        """Start all, and wait until they are there."""
        self._worker("s", "-p", "2")
        for _ in range(2):
            self._single.append(self._worker(self._next()))
        await self._are(4)

    async def drain(self) -> tuple[WorkerInfo, Callable[[], asyncio.Task[None]]]:
        """Start a successor; who is to be drained then, and what does it."""
        self._single.append(self._worker(self._next()))
        workers = await self._are(5)
        old = self._single.pop(0)
        (victim,) = [one for one in workers if one.worker == old.name]

        async def drained() -> None:
            last = [one async for one in self._operator.drain(victim.incarnation, grace="60s")][-1]
            if (last.state, last.forced) != ("drained", 0):
                raise AssertionError(f"{old.name}: {last}\n{old.text[-2000:]}")
            await asyncio.to_thread(old.popen.wait, 20)

        return victim, lambda: asyncio.create_task(drained())

    async def kill(
        self, chance: random.Random
    ) -> tuple[WorkerInfo, Callable[[], asyncio.Task[None]]]:
        """Who is to be killed, and what does it; its supervisor replaces it."""
        workers = await self._are(4)
        victim = chance.choice([one for one in workers if one.worker.startswith("s-")])

        async def killed() -> None:
            os.kill(victim.pid, signal.SIGKILL)
            await self._are(4, but=victim.incarnation)

        return victim, lambda: asyncio.create_task(killed())

    async def held_by(self, worker: WorkerInfo) -> set[str]:
        """The sessions that a worker holds, read with as little work as possible: who reads them
        is who measures."""
        owners = [("HGETALL", at.named("owners")) for at in self._store.keys.all]
        return {
            session.decode()
            for flat in await self._store.executor.commands(owners)
            for session, token in zip(flat[::2], flat[1::2], strict=True)
            if token.decode().split("|")[1] == worker.incarnation
        }

    async def _are(self, count: int, *, but: str = "") -> tuple[WorkerInfo, ...]:
        """Wait until so many workers are there, and one incarnation is not."""
        deadline = time.monotonic() + SETTLED_S
        while True:
            found = await self._operator.workers()
            if len(found) == count and but not in {one.incarnation for one in found}:
                return found
            if time.monotonic() > deadline:
                there = {one.incarnation: one.state for one in found}
                raise AssertionError(f"there are {there} instead of {count}, without {but!r}")
            await asyncio.sleep(0.2)

    def _next(self) -> str:
        self._count += 1
        return f"w{self._count}"

    def _worker(self, name: str, *options: str) -> Process:
        return self._running.python(
            name, "-m", "changeover_worker", "tests.support.streaming_app:app",
            "--name", name, "-c", str(SLOTS), *options,
        )  # fmt: skip


@asynccontextmanager
async def _reading(url: str, settings: Settings, count: int) -> AsyncIterator[list[Reader]]:
    readers = [Reader(f"r:{n}", n * TURN_S / count) for n in range(count)]
    async with Client(url, settings=settings) as client:
        tasks = [asyncio.create_task(one.read(client)) for one in readers]
        try:
            yield readers
            for one in readers:
                one.stopping = True
            async with asyncio.timeout(SETTLED_S):
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def replace_all(
    url: str, directory: Path, *, times: int, seed: int, say: Say, sessions: int = SESSIONS
) -> list[str]:
    """Replace workers so often; the promises that were broken. Says what followers saw."""
    chance = random.Random(seed)
    environment = {"CHANGEOVER_REDIS_URL": url, "CHANGEOVER_LOG_FORMAT": "json"}
    settings = read_settings(redis_url=url)
    pauses: dict[str, list[Pause]] = {"drain": [], "kill": []}
    quiet: list[Pause] = []
    async with AsyncExitStack() as stack:
        running = stack.enter_context(processes(directory, environment))
        operator = await stack.enter_async_context(Operator(url, settings=settings))
        store = await LeaseStore.open(url, settings)
        stack.push_async_callback(store.aclose)
        fleet = Fleet(running, operator, store)
        await fleet.start()
        readers = await stack.enter_async_context(_reading(url, settings, sessions))
        await eventually(
            lambda: all(any(isinstance(e, Delta) for _, e in one.times) for one in readers),
            "every session streams",
        )
        for number in range(times):
            how = "drain" if number % 2 == 0 else "kill"
            victim, strike = await (fleet.drain() if how == "drain" else fleet.kill(chance))
            await asyncio.sleep(QUIET_S)
            now = time.monotonic()
            quiet += [one.paused(now - QUIET_S) for one in readers]
            for one in readers:
                one.forget(now)
            held = await fleet.held_by(victim)
            since = time.monotonic()
            done = strike()
            found = await _gone_on([one for one in readers if one.session in held], since)
            await done
            pauses[how] += found
            say(f"{how:5} {victim.worker:4} with {len(held):3} sessions: {_told(found)}")
        everybody = list(readers)
    say(f"while nothing was replaced: {_told(quiet)}")
    for how, found in pauses.items():
        if found:
            say(f"{how}: {len(found)} sessions, {_told(found)}, goal p99 {GOALS_S[how]:g} s")
    sent = [one for reader in everybody for one in reader.sent]
    broken = [f"{one.session}: {text}" for one in everybody for text in one.seen.found()]
    broken += [f"{one.session}: told of {gap}" for one in everybody for gap in one.seen.told]
    with SyncClient(url) as client:
        broken += violations(client, sent)
    say(f"{len(sent)} turns of {sessions} sessions, {len(broken)} broken promises")
    return broken


async def _gone_on(readers: Sequence[Reader], since: float) -> list[Pause]:
    """The pause that each follower saw until its session spoke again."""
    deadline = since + SETTLED_S
    while True:
        await asyncio.sleep(0.2)
        found = [one.went_on(since) for one in readers]
        if None not in found:
            return [one for one in found if one is not None]
        if time.monotonic() > deadline:
            still = [str(one) for one, it in zip(readers, found, strict=True) if it is None]
            raise AssertionError(f"{len(still)} did not go on: {still[:3]}")


def _told(found: Sequence[Pause]) -> str:
    if not found:
        return "nobody waited"
    seen, written = (_spread(column) for column in zip(*found, strict=True))
    return f"pauses seen {seen}, written {written}"


def _spread(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    return f"p50 {median(ordered):.2f} p99 {p99:.2f} longest {ordered[-1]:.2f} s"


def replace_workers(times: int, seed: int, say: Say) -> list[str]:
    """The storm, on one of the servers that are installed."""
    kind = SERVERS[seed % len(SERVERS)]
    say(f"{times} replacements on {kind}; the model pauses {PIECE_S:g} s before each piece")
    with (
        tempfile.TemporaryDirectory(prefix="changeover-storm-") as directory,
        running_server(kind) as url,
    ):
        # The collector would stop the followers for seconds, to look through all that they keep.
        gc.disable()
        try:
            return asyncio.run(replace_all(url, Path(directory), times=times, seed=seed, say=say))
        except (AssertionError, TimeoutError) as failure:
            return [f"replacements on {kind}: {failure!r}"]
        finally:
            gc.enable()
