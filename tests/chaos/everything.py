"""All faults at once, over a fleet whose workers each have a network of their own.

Workers are killed, frozen, drained and replaced, half of the new ones from the commit before; the
network of one is cut, half-open, slow, or loses replies; Redis is killed and started on its file,
frozen, held back, full, cut off from everybody, or forgets its scripts; every other worker's clock
jumps. Blows fall while others still last. After each round all is quiet until every worker has
claimed and ended something new; at the end the checkers decide.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from changeover_shared._exit_codes import DONE, FORCED, UNANSWERED
from changeover_shared._store.store import Store
from tests.support.history import judge
from tests.support.history_recorder import final_states, recording
from tests.support.history_records import read_records
from tests.support.nodes import GONE, Node, running_node
from tests.support.processes import ROOT, Process
from tests.support.proxy import Proxy, proxy_before
from tests.support.servers import SERVERS
from tests.support.storms import FleetAtWork, Report, fleet_at_work

Say = Callable[[str], None]
WORKERS = 3
LASTING = ("--appendonly", "yes", "--appendfsync", "always")
"""A server that forgets nothing that it has acknowledged."""
ROUND_S = 20.0
PAUSE_S = (0.3, 2.0)
"""Between the beginnings of two blows."""
FREEZE_S = (3.5, 6.0)
"""Longer than the workers' lease of 3 s."""
FAULT_S = (0.5, 4.0)
GOES_ON_S = 120.0
DRAINED_S = 60.0


@dataclass(eq=False)
class Post:
    """A worker's place: its network, and who works there."""

    network: Proxy
    worker: Process
    struck: bool = False
    """Something happens to it just now."""


@dataclass
class Everything:
    """What blows fall on."""

    fleet: FleetAtWork
    server: Node
    chance: random.Random
    history: Path
    before: Path | None
    """Where the commit before this one is unpacked; None if there is none."""
    posts: list[Post] = field(default_factory=list)
    fell: Counter[str] = field(default_factory=Counter)
    _server_struck: bool = False
    _hired: int = 0

    def man(self, networks: list[Proxy]) -> None:
        """Give each network a worker."""
        self.posts = [Post(network, self._hire(network)) for network in networks]

    async def round(self, seconds: float) -> None:
        """Let blows fall for so long; then let all be over, and the fleet go on."""
        async with asyncio.TaskGroup() as blows:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                blows.create_task(self._blow())
                await asyncio.sleep(self.chance.uniform(*PAUSE_S))
        self._replace_the_unlucky()
        await self.fleet.goes_on(GOES_ON_S)

    async def _blow(self) -> None:
        if self.chance.random() < 0.3:
            await self._strike_server()
        else:
            await self._strike_worker()

    async def _strike_server(self) -> None:
        if self._server_struck:
            return
        self._server_struck = True
        blow = self.chance.choice(
            (self._killed, self._frozen, self._held_back, self._full, self._cut, self._forgetful)
        )
        self.fell[f"redis {blow.__name__.strip('_')}"] += 1
        try:
            await blow()
        finally:
            self._server_struck = False

    async def _strike_worker(self) -> None:
        free = [post for post in self.posts if not post.struck]
        if not free:
            return
        post = self.chance.choice(free)
        post.struck = True
        blow: Callable[[Post], Awaitable[None]] = self.chance.choice(
            (
                self._kill, self._kill, self._freeze, self._drain, self._drain,
                self._cut_off, self._half_open, self._slow, self._lossy,
            )
        )  # fmt: skip
        self.fell[f"worker {blow.__name__.strip('_')}"] += 1
        try:
            await blow(post)
        finally:
            post.struck = False

    async def _killed(self) -> None:
        self.server.kill()
        await asyncio.sleep(self.chance.uniform(0, 2))
        await asyncio.to_thread(self.server.start_again)

    async def _frozen(self) -> None:
        with self.server.frozen():
            await asyncio.sleep(self.chance.uniform(*FAULT_S))

    async def _held_back(self) -> None:
        for _ in range(10):
            self.server.client.client_pause(150)
            await asyncio.sleep(0.25)

    async def _full(self) -> None:
        used = self.server.info("memory")["used_memory"]
        self.server.client.config_set("maxmemory", round(used * 0.9))
        await asyncio.sleep(self.chance.uniform(*FAULT_S))
        self.server.client.config_set("maxmemory", 0)

    async def _cut(self) -> None:
        self.server.client.client_kill_filter(_type="normal", skipme=True)

    async def _forgetful(self) -> None:
        with suppress(*GONE):
            self.server.client.script_flush()

    async def _kill(self, post: Post) -> None:
        await asyncio.to_thread(post.worker.kill)
        self._replace(post)

    async def _drain(self, post: Post) -> None:
        leaving = post.worker
        leaving.send(signal.SIGTERM)
        self._replace(post)
        code = await asyncio.to_thread(leaving.popen.wait, DRAINED_S)
        assert code in (DONE, FORCED, -signal.SIGTERM), f"{leaving.name} drained with {code}"

    async def _freeze(self, post: Post) -> None:
        post.worker.send(signal.SIGSTOP)
        await asyncio.sleep(self.chance.uniform(*FREEZE_S))
        post.worker.send(signal.SIGCONT)

    async def _cut_off(self, post: Post) -> None:
        post.network.cut()

    async def _half_open(self, post: Post) -> None:
        post.network.swallow()
        await asyncio.sleep(self.chance.uniform(*FREEZE_S))
        post.network.pass_on()

    async def _slow(self, post: Post) -> None:
        post.network.delay(self.chance.uniform(0.02, 0.3))
        await asyncio.sleep(self.chance.uniform(*FAULT_S))
        post.network.delay(0)

    async def _lossy(self, post: Post) -> None:
        post.network.lose_at_random(0.05, self.chance.randrange(10**6))
        await asyncio.sleep(self.chance.uniform(*FAULT_S))
        post.network.lose_nothing()

    def _replace(self, post: Post) -> None:
        self.fleet.dismiss(post.worker)
        post.worker = self._hire(post.network)

    def _replace_the_unlucky(self) -> None:
        """Whoever could not reach Redis when it started has ended with the code that asks for
        another try."""
        for post in self.posts:
            if post.worker.popen.poll() == UNANSWERED:
                self.fell["worker found no Redis"] += 1
                self._replace(post)

    def _hire(self, network: Proxy) -> Process:
        self._hired += 1
        more = {"HISTORY": str(self.history)}
        if self._hired % 2 == 0:
            more["CLOCK"] = str(self.chance.randrange(10**6))
        if self.before is not None and self._hired % 4 >= 2:
            more["PYTHONPATH"] = os.pathsep.join(
                str(self.before / part) for part in ("shared", "worker", "producer")
            )
        return self.fleet.hire(url=network.url, **more)


async def rage_of_everything(
    kind: str, directory: Path, *, seed: int, seconds: float, say: Say, mixed: bool = False
) -> tuple[Report, list[str]]:
    """All faults for so long; what became of the work, and what the histories speak against.
    `mixed` lets half of the replacements run the commit before."""
    chance = random.Random(seed)
    history = directory / "history"
    history.mkdir()
    before = unpacked_commit_before(directory) if mixed else None
    if mixed:
        say(f"with workers of {'the commit before' if before else 'this commit alone'}")
    with running_node(kind, LASTING) as server, recording(history, "producer"):
        async with _at_work(server, directory, seed) as (fleet, networks):
            everything = Everything(fleet, server, chance, history, before)
            everything.man(networks)
            await fleet.works(producers=4)
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0:
                await everything.round(min(ROUND_S, left))
                say(f"{len(fleet.sent)} accepted, {everything.fell.total()} blows, all goes on")
            report = await fleet.settled()
            say(", ".join(f"{count} {blow}" for blow, count in sorted(everything.fell.items())))
            records = await asyncio.to_thread(read_records, history.iterdir())
            async with aclosing(await Store.open(server.url, fleet.settings)) as store:
                final = await final_states(store, {record.session for record in records})
    verdict = await asyncio.to_thread(judge, records, final)
    refused = sum(
        record.script in ("append", "commit") and record.word in ("LOST", "GONE", "EXPIRED")
        for record in records
    )
    say(f"{len(records)} calls, {refused} writes refused; {verdict}")
    return report, verdict.violations


@asynccontextmanager
async def _at_work(
    server: Node, directory: Path, seed: int
) -> AsyncIterator[tuple[FleetAtWork, list[Proxy]]]:
    with ExitStack() as stack:
        networks = [stack.enter_context(proxy_before(server.url)) for _ in range(WORKERS)]
        async with fleet_at_work(server.url, directory, seed=seed, workers=0) as fleet:
            yield fleet, networks


def unpacked_commit_before(directory: Path) -> Path | None:
    """The code of the commit before this one; None where git does not have it."""
    there = directory / "before"
    there.mkdir()
    parts = ["shared", "worker", "producer"]
    archive = subprocess.run(
        ["git", "archive", "HEAD~1", *parts], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        return None
    subprocess.run(["tar", "-x", "-C", there], input=archive.stdout, check=True)
    return there


def rage_with_everything(seconds: float, seed: int, say: Say) -> list[str]:
    """The promises that were broken."""
    kind = SERVERS[seed % len(SERVERS)]
    with tempfile.TemporaryDirectory(prefix="changeover-everything-") as directory:
        raging = rage_of_everything(
            kind, Path(directory), seed=seed, seconds=seconds, say=say, mixed=True
        )
        try:
            report, violations = asyncio.run(raging)
        except AssertionError as failure:
            say(f"everything on {kind}: broken off")
            return [f"everything on {kind}: {failure}"]
    found = [*report.against(), *violations]
    say(f"everything on {kind}: {report}; {len(found)} broken promises")
    return [f"everything on {kind}: {line}" for line in found]
