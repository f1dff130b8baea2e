"""The demonstration's processes: a server, and workers that are started, signalled and buried."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from changeover._operator import Operator
from changeover.cli._demo._failed import DemoFailed
from changeover.cli._demo._watch import poll
from changeover_shared._errors import UnknownSession
from changeover_shared._identifiers import new_incarnation
from changeover_shared._server.process import last_lines
from changeover_shared._server.reach import reach
from changeover_shared._server.url import EMBEDDED_URL, Target
from changeover_shared._settings import read_settings
from changeover_shared._store.lease_store import LeaseStore

APP: Final = "changeover_worker._demo_app:app"
AGENT: Final = "demo"
_LEASES: Final = {"lease": "2s", "renew": "600ms", "margin": "300ms"}
_KEPT: Final = ("CHANGEOVER_PREFIX", "CHANGEOVER_PARTITIONS", "CHANGEOVER_PAYLOAD_KEYS")
"""Settings of the fleet, which hold for every process on it; all others are the demo's own."""
_FAREWELL_S: Final = 3.0


@dataclass(frozen=True)
class Worker:
    """One worker process."""

    name: str
    incarnation: str
    process: Process
    log: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid


class DemoFleet:
    """A session of its own on a server, and the workers that serve it. Use within `demo_fleet`."""

    def __init__(
        self,
        url: str,
        target: Target,
        server: str,
        *,
        operator: Operator,
        store: LeaseStore,
        directory: Path,
    ) -> None:
        self.target = target
        self.server = server
        """What the server is, for people."""
        self.operator = operator
        self.session_id = ""
        self._url = url
        self._store = store
        self._directory = directory
        self._workers: list[Worker] = []

    @property
    def queue(self) -> str:
        """A queue of this run alone, so that no other worker takes the session."""
        return self.session_id.replace(":", "-")

    @property
    def runs(self) -> list[str]:
        """Each run of the tool, whoever it ran for."""
        noted = self._directory / "runs"
        return noted.read_text().split() if noted.exists() else []

    def stall(self, step: int) -> None:
        """Let the model stop in the middle of a step's text."""
        # Renamed, so that no worker reads half of it.
        fresh = self._directory / "stall.new"
        fresh.write_text(str(step))
        fresh.rename(self._directory / "stall")

    def go_on(self) -> None:
        """Let the model speak on."""
        (self._directory / "stall").unlink(missing_ok=True)

    async def choose_session(self) -> None:
        """Take the first of `demo:1`, `demo:2`, ... that does not exist."""
        number = 1
        while True:
            self.session_id = f"demo:{number}"
            try:
                await self.operator.session(self.session_id)
            except UnknownSession:
                return
            number += 1

    async def start(self, name: str, url: str | None = None) -> Worker:
        """Start a worker, which reaches Redis at `url` if it is given."""
        incarnation = new_incarnation(name)
        log = self._directory / f"{name}.log"
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "changeover_worker", APP),
                *("--queue", self.queue, "--name", name, "--incarnation", incarnation),
                *("--parent", str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self._environment(url or self._url),
                # Signals come from the story alone, a Ctrl-C at the terminal included.
                start_new_session=True,
            )
        worker = Worker(name, incarnation, process, log)
        self._workers.append(worker)
        return worker

    async def ready(self, worker: Worker) -> None:
        """Wait until a worker serves. Raises `DemoFailed`."""

        async def registered() -> bool | None:
            if worker.process.returncode is not None:
                said = last_lines(self.log_of(worker))
                raise DemoFailed(f"worker {worker.name} ended at once: {said}")
            return await self.state_of(worker) is not None or None

        await poll(registered, f"worker {worker.name}")

    async def state_of(self, worker: Worker) -> str | None:
        """What Redis says of a worker."""
        for info in await self.operator.workers():
            if info.incarnation == worker.incarnation:
                return info.state
        return None

    def log_of(self, worker: Worker) -> str:
        """What a worker has said so far."""
        return worker.log.read_text(errors="replace")

    async def bury(self, worker: Worker) -> None:
        """Do what a supervisor does for a dead worker: its sessions go on elsewhere at once."""
        await worker.process.wait()
        await self._store.bury(worker.incarnation)

    async def end(self) -> None:
        """End every process that was started, whatever state it is in."""
        alive = [w for w in self._workers if w.process.returncode is None]
        for worker in alive:
            for number in (signal.SIGTERM, signal.SIGCONT):
                worker.process.send_signal(number)
        waits = [asyncio.create_task(worker.process.wait()) for worker in alive]
        if waits:
            await asyncio.wait(waits, timeout=_FAREWELL_S)
        for worker in alive:
            if worker.process.returncode is None:
                worker.process.kill()
        await asyncio.gather(*waits)

    def _environment(self, url: str) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("CHANGEOVER_") or name in _KEPT
        }
        leases = {f"CHANGEOVER_{name.upper()}": value for name, value in _LEASES.items()}
        return {
            **inherited,
            **leases,
            "CHANGEOVER_REDIS_URL": url,
            "CHANGEOVER_DEMO_DIR": str(self._directory),
            "CHANGEOVER_LOG_FORMAT": "text",
        }


@asynccontextmanager
async def demo_fleet(url: str | None) -> AsyncIterator[DemoFleet]:
    """A fleet on the embedded server, or on the server at `url`; nothing runs on afterwards.

    Raises `SetupError`, `Invalid` and `StoreUnavailable`.
    """
    async with AsyncExitStack() as stack:
        reached = await asyncio.to_thread(reach, url or EMBEDDED_URL)
        stack.push_async_callback(asyncio.to_thread, reached.close)
        target = reached.target
        if reached.embedded is None:
            where, server = str(url), target.shown
        else:
            where = reached.embedded.url
            server = f"{reached.embedded.version} (embedded) {target.host}:{target.port}"
        settings = read_settings(**_LEASES)
        operator = await stack.enter_async_context(Operator(where, settings=settings))
        store = await LeaseStore.open(where, settings, name="demo")
        stack.push_async_callback(store.aclose)
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="changeover-demo-"))
        )
        fleet = DemoFleet(
            where, target, server, operator=operator, store=store, directory=directory
        )
        stack.push_async_callback(fleet.end)
        await fleet.choose_session()
        yield fleet
