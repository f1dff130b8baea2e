"""A server with a client and workers on it, and when their work is done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

from benchmarks._processes import Process, python, running
from benchmarks._server import Server, server
from changeover import Client, Ending, Receipt, Refused, Settings, Submission
from changeover_shared._identifiers import partition_of
from changeover_shared._store.keys import Keys, route_of

_POLL_S = 0.05
_PATIENCE_S = 300
TEXT = "what about my order? " + "y" * 179
"""What every message says: 200 bytes."""


class Fleet:
    """A client and a look at the indexes, which costs the server little."""

    def __init__(self, on: Server, client: Client, settings: Settings) -> None:
        self.server = on
        self.client = client
        self.settings = settings
        self._keys = Keys(settings.prefix, settings.partitions)
        self.looks = 0
        """How many commands have been spent on looking."""

    @contextmanager
    def worker(
        self,
        *,
        concurrency: int = 200,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> Iterator[Process]:
        """Run one worker process; it may not be ready yet."""
        command = python("changeover_worker", "benchmarks.apps:app")
        command += ["--concurrency", str(concurrency), "--redis", self.server.url]
        log = log or self.server.directory / "worker.log"
        with running(command, environment=environment, log=log) as process:
            yield process

    async def ready(self, logs: Sequence[Path]) -> None:
        """Wait until workers with these logs serve."""
        deadline = time.monotonic() + _PATIENCE_S
        while not all(log.exists() and "worker_ready" in log.read_text() for log in logs):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all workers were ready after {_PATIENCE_S} s")
            await asyncio.sleep(_POLL_S)

    async def submit(self, agent: str, sessions: Iterable[str]) -> list[Receipt]:
        """Submit one message to each session through one pipeline; a session may come twice."""
        items = [Submission(session, TEXT, agent=agent) for session in sessions]
        return [accepted(answer) async for answer in self.client.submit_many(items)]

    async def warm(self) -> None:
        """Run a turn in every partition, so that all of it exists and everything is imported."""
        await self.completed(await self.submit("constant", self.in_every_partition()))
        await self.done()

    def in_every_partition(self) -> list[str]:
        """The ids of sessions, one for each partition."""
        found: dict[int, str] = {}
        for n in count():
            found.setdefault(partition_of(f"warm-{n}", self.settings.partitions), f"warm-{n}")
            if len(found) == self.settings.partitions:
                return list(found.values())
        raise AssertionError("an endless count has ended")

    async def completed(self, receipts: list[Receipt]) -> None:
        """Wait for the endings; raise unless each has completed, once."""
        ended = 0
        async for outcome in self.client.wait_many(receipts, timeout=f"{_PATIENCE_S}s"):
            if outcome.ending is not Ending.COMPLETED:
                raise RuntimeError(f"{outcome.submission_id} ended as {outcome.ending}")
            ended += 1
        if ended != len(receipts):
            raise RuntimeError(f"{ended} endings of {len(receipts)} submissions")

    async def done(self, agent: str = "constant") -> None:
        """Wait until no session is ready and none is held."""
        deadline = time.monotonic() + _PATIENCE_S
        while sum(self.waiting_and_held(agent)):
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"not done after {_PATIENCE_S} s: {self.waiting_and_held(agent)}"
                )
            await asyncio.sleep(_POLL_S)

    def waiting_and_held(self, agent: str) -> tuple[int, int]:
        """How many sessions wait for a worker, and how many are held."""
        pipe = self.server.client.pipeline(transaction=False)
        for keys in self._keys.all:
            pipe.zcard(keys.ready(route_of(agent)))
            pipe.zcard(keys.named("leases"))
        found = pipe.execute()
        self.looks += len(found) + 1
        return sum(found[::2]), sum(found[1::2])

    async def held(self, agent: str, sessions: int) -> None:
        """Wait until so many sessions are held and the workers write nothing more."""
        calls, deadline = -1.0, time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            before, calls = calls, self.server.counters().script_calls
            if self.waiting_and_held(agent)[1] == sessions and calls - before < _STILL:
                return
            await asyncio.sleep(0.5)
        raise RuntimeError(
            f"{self.waiting_and_held(agent)} of {sessions} are held after {_PATIENCE_S} s"
        )


_STILL = 50
"""Script calls in half a second of workers that only renew and sweep: about 32."""


def accepted(answer: Receipt | Refused) -> Receipt:
    """The receipt; raises when a submission was refused."""
    if isinstance(answer, Refused):
        raise RuntimeError(f"{answer.submission_id} was refused: {answer}")
    return answer


@asynccontextmanager
async def fleet(*, durable: bool = False, partitions: int | None = None) -> AsyncIterator[Fleet]:
    """Run a fresh server without workers; the fleet has as many partitions as fleets have, if it is
    not told otherwise."""
    settings = Settings() if partitions is None else Settings(partitions=partitions)
    with server(durable=durable) as found:
        async with Client(found.url, settings=settings) as client:
            yield Fleet(found, client, settings)
