"""`changeover dev`: a server and a worker on this machine, and a new worker for each change."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from changeover.cli._changes import Changes
from changeover.cli._entry_points import require_parts
from changeover.cli._options import Json, Redis
from changeover.cli._output import note
from changeover_shared._errors import StoreUnavailable
from changeover_shared._exit_codes import DONE, FORCED, MENDABLE, MISCONFIGURED
from changeover_shared._identifiers import new_incarnation
from changeover_shared._server.reach import reach
from changeover_shared._server.url import EMBEDDED_URL, told_url
from changeover_shared._settings import read_settings
from changeover_shared._store.lease_store import LeaseStore

NAME: Final = "dev"
RESTART_S: Final = 1.0
"""How long a worker that died is not replaced, so that one that cannot live does not spin."""
FAREWELL_S: Final = 2.0
_OR_RESTART: Final = "; what is not in a file needs a restart of changeover dev"


def dev(
    app: Annotated[str, typer.Argument(metavar="APP", help="The app, as module:attribute.")],
    reload: Annotated[
        bool, typer.Option("--reload/--no-reload", help="Start anew when a .py file changes.")
    ] = True,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Run everything on this machine: a server and a worker with reload.

    A turn that runs while a file changes goes on in the new code, at its next step. The server
    is an embedded one in ./.changeover unless a URL is given. Ctrl-C drains the worker.
    """
    where = told_url(redis, read_settings()) or EMBEDDED_URL
    require_parts("changeover dev", where)
    narrator = Narrator(as_json=as_json)
    raise typer.Exit(asyncio.run(_serve(app, where, narrator, reload=reload)))


class Narrator:
    """Says on stderr what happens, between the lines of the workers' logs and in their format."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a worker; what the caller's own says wins over text."""
        if self._as_json:
            return {**os.environ, "CHANGEOVER_LOG_FORMAT": "json"}
        return {"CHANGEOVER_LOG_FORMAT": "text", **os.environ}

    def tell(self, text: str) -> None:
        """Write one line."""
        if self._as_json:
            typer.echo(json.dumps({"event": "dev", "text": text}, ensure_ascii=False), err=True)
        else:
            note(text)


async def _serve(app: str, where: str, narrator: Narrator, *, reload: bool) -> int:
    reached = await asyncio.to_thread(reach, where)
    try:
        if reached.embedded is not None:
            where = reached.embedded.url
            narrator.tell(f"{reached.embedded.version} (embedded in {reached.embedded.directory})")
        else:
            narrator.tell(f"redis {reached.target.shown}")
        return await Dev(app, where, narrator, reload=reload).run()
    finally:
        await asyncio.to_thread(reached.close)


@dataclass
class Started:
    """A worker process and the task that awaits its exit code."""

    incarnation: str
    process: Process
    exited: asyncio.Task[int]
    told: bool = False
    """It was asked to drain; asking again would force it."""

    def drain(self) -> None:
        """Ask it, once, to hand its sessions off and end."""
        if not self.told:
            self.signal(signal.SIGTERM)
        self.told = True

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it lives."""
        if self.process.returncode is None:
            self.process.send_signal(number)


class Dev:
    """Keeps one worker running; after a change the old one hands its sessions off to a new one."""

    def __init__(self, app: str, url: str, narrator: Narrator, *, reload: bool) -> None:
        self._app = app
        self._url = url
        self._narrator = narrator
        self._changes = Changes(Path.cwd()) if reload else None
        self._stopping = asyncio.Event()
        self._alive: list[Started] = []
        self._edited = False
        """A file has changed since the start, and the next change may mend what that one broke."""

    async def run(self) -> int:
        """Run until a signal, or until the worker ends when nothing is reloaded; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        try:
            while not self._stopping.is_set():
                code = await self._one_worker()
                hopeless = code == MISCONFIGURED and not self._edited
                if self._changes is None or hopeless:
                    return code
        finally:
            codes = await self._end_all()
        return FORCED if FORCED in codes else DONE

    def _stop(self) -> None:
        """Drain every worker; asked again, let them hand off at once."""
        again = self._stopping.is_set()
        self._stopping.set()
        for worker in self._alive:
            if again:
                worker.signal(signal.SIGQUIT)
            else:
                worker.drain()

    async def _one_worker(self) -> int:
        """Start a worker and await what ends its time: a change, a signal, or its own end."""
        worker = await self._start()
        change = asyncio.create_task(self._change())
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({worker.exited, change, stop}, return_when=asyncio.FIRST_COMPLETED)
            if change.done():
                self._edited = True
                self._narrator.tell(f"{change.result()} changed: the worker hands off to a new one")
                worker.drain()
                return DONE
            code = await worker.exited
            if self._changes is not None and not self._stopping.is_set():
                await self._after_death(worker, code, change, stop)
            if code == MENDABLE:
                return MISCONFIGURED if self._changes is None else DONE
            return code if code >= 0 else 128 - code
        finally:
            for task in (change, stop):
                task.cancel()

    async def _after_death(
        self,
        worker: Started,
        code: int,
        change: asyncio.Task[str],
        stop: asyncio.Task[bool],
    ) -> None:
        """Wait for what may help: a change if the app does not start, else a moment."""
        if code == MENDABLE or (code == MISCONFIGURED and self._edited):
            self._narrator.tell("waiting for a change" + ("" if code == MENDABLE else _OR_RESTART))
            await asyncio.wait({change, stop}, return_when=asyncio.FIRST_COMPLETED)
            self._edited |= change.done()
            return
        if code == MISCONFIGURED:
            return
        self._narrator.tell(f"the worker ended with {code}; a new one is started")
        await self._bury(worker)
        await asyncio.wait({change, stop}, timeout=RESTART_S)

    async def _change(self) -> str:
        """The name of a file that changed; never without reload."""
        if self._changes is None:
            never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            return await never
        return await self._changes.next()

    async def _start(self) -> Started:
        incarnation = new_incarnation(NAME)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "changeover_worker", self._app, "--processes", "1"),
            *("--name", NAME, "--incarnation", incarnation, "--parent", str(os.getpid()), "--dev"),
            stdin=asyncio.subprocess.DEVNULL,
            env={
                **self._narrator.environment,
                "CHANGEOVER_REDIS_URL": self._url,
                # Compiled files are told apart by the second and by size: an edit that changes
                # neither would run the old code.
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            # A Ctrl-C at the terminal comes here alone, and is passed on.
            start_new_session=True,
        )
        self._narrator.tell(f"worker of {self._app} pid {process.pid}")
        started = Started(incarnation, process, asyncio.create_task(process.wait()))
        self._alive = [worker for worker in self._alive if not worker.exited.done()] + [started]
        return started

    async def _bury(self, worker: Started) -> None:
        """End the leases of a dead worker; a server that does not answer lets them run out."""
        try:
            async with asyncio.timeout(FAREWELL_S):
                store = await LeaseStore.open(self._url, read_settings(), name=NAME)
                try:
                    await store.bury(worker.incarnation)
                finally:
                    await store.aclose()
        except (StoreUnavailable, TimeoutError):
            self._narrator.tell(
                "the server does not answer: the worker's sessions wait for their leases to end"
            )

    async def _end_all(self) -> list[int]:
        """Drain every worker; their exit codes."""
        for worker in self._alive:
            worker.drain()
        try:
            return await asyncio.gather(*(worker.exited for worker in self._alive))
        finally:
            for worker in self._alive:
                worker.signal(signal.SIGKILL)
