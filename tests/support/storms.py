"""A fleet of real worker processes under steady work, for tests in which something bad happens.

    async with fleet_at_work(url, directory, seed=seed) as fleet:
        ...  # kill the server, pause it, cut its connections
        await fleet.goes_on()
        report = await fleet.settled()

Producers and followers live in the test's process. What a report says is read from Redis, from the
tools' trace and from the workers' logs; `expect` tells what was lost beyond what is allowed.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from changeover import Client, SyncClient
from changeover_shared._errors import Busy, NotDurable, StoreUnavailable
from changeover_shared._settings import Settings, read_settings
from changeover_shared._store.store import Store
from tests.support.following import Following
from tests.support.processes import Process, Processes, processes
from tests.support.promises import Sent, violations
from tests.support.traced_tool import runs_in

SHORT_LEASE: Mapping[str, str] = {"lease": "3s", "renew": "1s", "margin": "500ms"}
"""What a fleet is told unless the test says otherwise: a dead worker's sessions go on soon."""
SESSIONS = 5
"""How many sessions each producer writes to again and again. The first one of each is followed."""
FRESH = 4
"""One message of so many begins a session of its own: there is always something to claim, also
when one worker holds all the others and their inboxes never run empty."""
REST_S = 0.12
"""How long a producer rests at most after each message."""
READ_AT_ONCE = 1000


@dataclass(frozen=True)
class Report:
    """What became of everything that the producers were told is accepted."""

    accepted: int
    ended: int
    lost: tuple[Sent, ...]
    """Acknowledged, and unknown to the store afterwards."""
    tool_runs: int
    twice: tuple[str, ...]
    """Calls of a tool that is `once` and ran more than once."""
    gaps: tuple[str, ...]
    """What followers were told that they have missed."""
    not_live: tuple[str, ...]
    """What workers said of themselves that a liveness probe would have killed them for."""
    broken: tuple[str, ...]
    """Promises that hold on any server, whatever it lost, and did not."""

    def __str__(self) -> str:
        return (
            f"{self.accepted} accepted, {self.ended} ended, {len(self.lost)} lost, "
            f"{self.tool_runs} tool runs, {len(self.twice)} twice, {len(self.gaps)} gaps told"
        )

    def against(self, *, may_lose: bool = False, may_rewind: bool = False) -> list[str]:
        """What speaks against it. A server that `may_lose` what it acknowledged may forget
        messages, and that a tool has run; nothing else. One that `may_rewind` may forget the
        newest events of a journal, which nobody waits for, if followers are told."""
        found = [*self.broken, *(f"a worker was not live: {one}" for one in self.not_live)]
        if not may_lose:
            found += [f"lost: {one}" for one in self.lost]
            found += [f"{key} is `once` and ran again" for key in self.twice]
        if not (may_lose or may_rewind):
            found += [f"a follower missed something: {gap}" for gap in self.gaps]
        return found


class FleetAtWork:
    """Workers, producers and followers that are busy with each other."""

    def __init__(
        self, url: str, running: Processes, told: Mapping[str, str], tool_log: Path, seed: int
    ) -> None:
        self._url = url
        self._running = running
        self._told = told
        self.tool_log = tool_log
        """Where each run of a tool has left a line."""
        self._seed = seed
        self._settings = read_settings(**told)
        self._stop = asyncio.Event()
        self._producing: list[asyncio.Task[None]] = []
        self._following: dict[str, Following] = {}
        self.workers: list[Process] = []
        self.former: list[Process] = []
        """Workers that were dismissed; what they had logged still counts."""
        self.sent: list[Sent] = []
        """What was acknowledged, in each session's order."""

    @property
    def settings(self) -> Settings:
        """What every process of the fleet was told."""
        return self._settings

    async def work(self, workers: int, producers: int) -> None:
        """Start, and return when every worker has ended a turn."""
        for _ in range(workers):
            self.hire()
        await self.works(producers)

    async def works(self, producers: int) -> None:
        """Let producers begin, and return when every worker that was hired has ended a turn."""
        await self._says("worker_ready", dict.fromkeys((one.name for one in self.workers), 0))
        self._producing = [asyncio.create_task(self._produce(n)) for n in range(producers)]
        await self.goes_on()

    def hire(self, *, url: str | None = None, **environment: str) -> Process:
        """Start one more worker, by another way to the server if that is said."""
        name = f"w{len(self.workers) + len(self.former)}"
        worker = start_storm_worker(
            self._running,
            name,
            self._told,
            url=url or self._url,
            tool_log=self.tool_log,
            **environment,
        )
        self.workers.append(worker)
        return worker

    def dismiss(self, worker: Process) -> None:
        """Expect nothing more of a worker: it may be gone."""
        self.workers.remove(worker)
        self.former.append(worker)

    def logged(self, event: str) -> list[dict[str, Any]]:
        """Every entry of one event in the workers' logs, with the worker's name."""
        everybody = (*self.former, *self.workers)
        return [entry for worker in everybody for entry in entries(worker, event)]

    async def goes_on(self, within_s: float = 60.0) -> None:
        """Wait until each worker has claimed and ended something from now on: it consumes."""
        before = {event: self._count(event) for event in ("session_claimed", "turn_ended")}
        for event, counts in before.items():
            await self._says(event, counts, within_s)

    async def accepts(self, count: int, within_s: float = 60.0) -> None:
        """Wait until so many more messages were accepted."""
        until = len(self.sent) + count
        await self._until(lambda: len(self.sent) >= until, f"{count} more accepted", within_s)

    async def settled(self, within_s: float = 90.0) -> Report:
        """Stop producing, wait until all that was accepted has ended, and judge the whole."""
        self._stop.set()
        async with asyncio.timeout(within_s):
            await asyncio.gather(*self._producing)
        async with aclosing(await Store.open(self._url, self._settings)) as store:
            lost, open_ = await _ended(store, self.sent, within_s)
            behind = [await one.caught_up(store, within_s) for one in self._following.values()]
        kept = [one for one in self.sent if one not in set(lost)]
        broken = [f"{one} never ended" for one in open_]
        broken += [text for text in behind if text]
        broken += [text for one in self._following.values() for text in one.found()]
        broken += [f"{one.name} died: {one.text[-500:]}" for one in self._dead()]
        broken += await asyncio.to_thread(self._violations, kept)
        runs = runs_in(self.tool_log)
        return Report(
            accepted=len(self.sent),
            ended=len(kept) - len(open_),
            lost=tuple(lost),
            tool_runs=sum(runs.values()),
            twice=tuple(key for key, count in runs.items() if count > 1),
            gaps=tuple(text for one in self._following.values() for text in one.told),
            not_live=tuple(f"{one['worker']}: {one['reason']}" for one in self.logged("not_live")),
            broken=tuple(broken),
        )

    async def aclose(self) -> None:
        """End producers and followers; the processes end with their owner."""
        for task in self._producing:
            task.cancel()
        await asyncio.gather(*self._producing, return_exceptions=True)
        for one in self._following.values():
            await one.aclose()

    async def _produce(self, number: int) -> None:
        """Write to this producer's sessions, in order, each message until it is acknowledged."""
        chance = random.Random(f"{self._seed}/{number}")
        async with Client(self._url, settings=self._settings) as client:
            count = 0
            while not self._stop.is_set():
                fresh = count % FRESH == 0
                session = (
                    f"fresh:{number}:{count}" if fresh else f"storm:{number}:{count % SESSIONS}"
                )
                text = f"look k{count}" if chance.random() < 0.4 else f"talk {count}"
                await self._send(client, Sent(session, f"m:{number}:{count}", text))
                count += 1
                await asyncio.sleep(chance.uniform(0, REST_S))

    async def _send(self, client: Client, message: Sent) -> None:
        while True:
            try:
                await client.submit(message.session, message.text, id=message.id)
            except Busy as error:
                await asyncio.sleep(error.retry_after.total_seconds())
            except (StoreUnavailable, NotDurable):
                await asyncio.sleep(0.1)
            else:
                break
        self.sent.append(message)
        followed = message.session.startswith("storm:") and message.session.endswith(":0")
        if followed and message.session not in self._following:
            self._following[message.session] = Following(self._url, self._settings, message.session)

    def _violations(self, kept: Sequence[Sent]) -> list[str]:
        with SyncClient(self._url, settings=self._settings) as client:
            return violations(client, kept)

    def _count(self, event: str) -> dict[str, int]:
        return {worker.name: len(entries(worker, event)) for worker in self.workers}

    async def _says(self, event: str, beyond: Mapping[str, int], within_s: float = 60.0) -> None:
        await self._until(
            lambda: all(count > beyond[name] for name, count in self._count(event).items()),
            f"{event!r} in every worker's log",
            within_s,
        )

    async def _until(self, holds: Callable[[], bool], description: str, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not holds():
                    self._must_produce()
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            said = {worker.name: worker.text[-1500:] for worker in self.workers}
            raise AssertionError(f"after {within_s:g} s never: {description}; {said}") from error

    def _must_produce(self) -> None:
        for task in self._producing:
            if task.done():
                task.result()
        if dead := self._dead():
            raise AssertionError(f"{dead[0].name} died: {dead[0].text[-3000:]}")

    def _dead(self) -> list[Process]:
        return [worker for worker in self.workers if worker.popen.poll() is not None]


@asynccontextmanager
async def fleet_at_work(
    url: str,
    directory: Path,
    *,
    seed: int,
    workers: int = 3,
    producers: int = 4,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[FleetAtWork]:
    """A fleet whose every worker has ended a turn; without workers, one that waits for `hire` and
    `works`. `settings` as they stand in the environment,
    in lower case and without the prefix: `{"durability": "replica"}`."""
    told = {"partitions": "8", "journal_events": "1000000", **SHORT_LEASE, **(settings or {})}
    async with AsyncExitStack() as stack:
        running = stack.enter_context(processes(directory, {}))
        fleet = FleetAtWork(url, running, told, directory / "tools.log", seed)
        stack.push_async_callback(fleet.aclose)
        if workers:
            await fleet.work(workers, producers)
        yield fleet


def start_storm_worker(
    running: Processes,
    name: str,
    told: Mapping[str, str],
    *,
    url: str,
    tool_log: Path,
    **more: str,
) -> Process:
    """Start one worker of the storms' app, told what `fleet_at_work` is."""
    return running.python(
        name, "-m", "changeover_worker", "tests.support.storm_app:app",
        "--name", name, "--concurrency", "40",
        TOOL_LOG=str(tool_log),
        **environment(told, url=url),
        **more,
    )  # fmt: skip


def environment(told: Mapping[str, str], *, url: str) -> dict[str, str]:
    """Settings as a process finds them; its log is for machines."""
    named = {f"CHANGEOVER_{name.upper()}": value for name, value in told.items()}
    return named | {"CHANGEOVER_REDIS_URL": url, "CHANGEOVER_LOG_FORMAT": "json"}


def entries(worker: Process, event: str) -> list[dict[str, Any]]:
    """The entries of one event in a worker's log, oldest first, with the worker's name."""
    mark = f'"event": "{event}"'
    # The last line may be half written.
    lines = worker.text.split("\n")[:-1]
    return [{"worker": worker.name, **json.loads(line)} for line in lines if mark in line]


async def _ended(
    store: Store, sent: Sequence[Sent], within_s: float
) -> tuple[list[Sent], list[Sent]]:
    """Wait until each has ended; those that the store does not know, and those still open."""
    open_ = list(sent)
    lost: list[Sent] = []
    deadline = asyncio.get_running_loop().time() + within_s
    while open_ and asyncio.get_running_loop().time() < deadline:
        part, rest = open_[:READ_AT_ONCE], open_[READ_AT_ONCE:]
        states = await store.submissions([(one.session, one.id) for one in part])
        lost += [one for one, state in zip(part, states, strict=True) if state is None]
        waits = [
            one
            for one, state in zip(part, states, strict=True)
            if state is not None and state.ending is None
        ]
        open_ = [*waits, *rest]
        if waits:
            await asyncio.sleep(0.1)
    return lost, open_
