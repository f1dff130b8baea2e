"""The supervisor of `--processes N`: starts N workers, replaces the dead, passes signals on.

It knows the incarnation of each child, so a death is evidence enough: the child's leases are
ended at once and its sessions go on elsewhere without waiting for a lease to run out.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from tempfile import TemporaryDirectory
from typing import Final

from structlog.typing import FilteringBoundLogger

from changeover_shared._bind import OFF
from changeover_shared._errors import ChangeoverError
from changeover_shared._exit_codes import DONE, ENDED_BADLY, FORCED, MISCONFIGURED
from changeover_shared._identifiers import new_incarnation, worker_name
from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_worker._process.children import Children
from changeover_worker._process.farewell import FAREWELL_S, close
from changeover_worker._process.probes import answering
from changeover_worker._process.service import ServiceManager

QUICK_S: Final = 10.0
"""A child that dies sooner is replaced more slowly each time."""
SLOWEST_S: Final = 30.0
STARTED_S: Final = 60.0
"""A first child that lived so long had started: its configuration was right then."""


def backoff(quick_deaths: int) -> float:
    """How long to wait before a child is replaced, in seconds, without its jitter."""
    return min(SLOWEST_S, 0.25 * 2**quick_deaths) if quick_deaths else 0.0


def verdict(codes: Sequence[int]) -> int:
    """The supervisor's exit code, from those of its children: the gravest one."""
    for code in (MISCONFIGURED, FORCED, ENDED_BADLY):
        if code in codes:
            return code
    return DONE


def died(code: int) -> str:
    """How a process ended, for people: its exit code, or the signal that killed it."""
    if code >= 0:
        return f"the worker exited with code {code}"
    with suppress(ValueError):
        return f"the worker was killed by {signal.Signals(-code).name}"
    return f"the worker was killed by signal {-code}"


class Supervisor:
    """Keeps a number of worker processes running until it is told to stop."""

    def __init__(
        self,
        command: Sequence[str],
        settings: Settings,
        url: str,
        *,
        name: str,
        burst: bool,
        log: FilteringBoundLogger,
        service: ServiceManager | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`command` starts one worker; its `--name` and `--incarnation` are added. Raises
        `Invalid` when a child's name would be too long."""
        self._command = tuple(command)
        self._settings = settings
        self._url = url
        self._names = [worker_name(f"{name}-{i + 1}") for i in range(settings.processes)]
        self._incarnation = new_incarnation(name)
        self._final = {DONE, FORCED, ENDED_BADLY} if burst else set[int]()
        """Exit codes of children that have done what they were there for."""
        self._log = log
        self._service = service or ServiceManager()
        self._environment = {**os.environ, **(environment or {})}
        self._sockets: Mapping[str, str] = {}
        """Where each child answers to probes, if anybody asks."""
        self._children: dict[str, Process] = {}
        self._stopping = asyncio.Event()
        self._stop_with = signal.SIGTERM
        """What a child that is born while stopping is sent."""
        self._codes: list[int] = []

    async def run(self) -> int:
        """Supervise until every child has ended for good; the exit code.

        Raises `SetupError` or `StoreUnavailable` before a child is started.
        """
        async with AsyncExitStack() as stack:
            children = self._asked_children(stack)
            await stack.enter_async_context(
                answering(self._settings.health_bind, children.routes(), self._log)
            )
            store = await LeaseStore.open(self._url, self._settings, name=self._incarnation)
            stack.push_async_callback(close, store)
            telling = asyncio.create_task(self._service.keep_telling(children.standing))
            stack.callback(telling.cancel)
            async with asyncio.TaskGroup() as group:
                for name in self._names:
                    group.create_task(self._keep(name, store), name=name)
        return verdict(self._codes)

    def pass_on(self, number: signal.Signals) -> None:
        """Send a signal to every child; TERM, INT and QUIT also end the supervision."""
        if number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            if self._stopping.is_set() or number is signal.SIGQUIT:
                self._stop_with = signal.SIGQUIT
            self._stopping.set()
            self._service.stopping("draining")
        for child in self._children.values():
            _send(child, _as_sent(number))

    def _asked_children(self, stack: AsyncExitStack) -> Children:
        """The children as they answer; they listen if anybody asks."""
        if self._settings.health_bind != OFF or self._service.listens:
            directory = stack.enter_context(TemporaryDirectory(prefix="changeover-"))
            self._sockets = {name: f"{directory}/{i}" for i, name in enumerate(self._names, 1)}
        return Children(self._sockets, self._children.keys, self._stopping.is_set)

    def _environment_of(self, name: str) -> Mapping[str, str]:
        path = self._sockets.get(name)
        return {**self._environment, "CHANGEOVER_HEALTH_BIND": f"unix:{path}" if path else OFF}

    async def _keep(self, name: str, store: LeaseStore) -> None:
        """One child and its successors.

        A first child that will not start ends the supervision. A replacement that will not, after
        an edit of the app for example, is tried again: the other children are healthy.
        """
        quick_deaths = 0
        first = True
        while not self._stopping.is_set():
            began = time.monotonic()
            code, ordered = await self._live(name, store)
            lived_s = time.monotonic() - began
            if ordered or code in self._final or self._stopping.is_set():
                self._codes.append(_last_word(code))
                return
            if code == MISCONFIGURED and first and lived_s < STARTED_S:
                self._codes.append(code)
                self.pass_on(signal.SIGTERM)
                return
            first = False
            quick = lived_s < QUICK_S or code == MISCONFIGURED
            quick_deaths = quick_deaths + 1 if quick else 0
            pause = backoff(quick_deaths) * random.uniform(0.8, 1.2)
            self._log.warning(
                "warning", code="worker_died", worker=name, exit=code, replaced_s=round(pause, 1)
            )
            await self._rest(pause)

    async def _live(self, name: str, store: LeaseStore) -> tuple[int, bool]:
        """Start a child, await its end and, unless it drained, evict it; its exit code, and whether
        it drained because an operator ordered it to: then it stays down.

        A child that nobody told to stop has died, whatever its exit code says: a tool may have
        ended it.
        """
        incarnation = new_incarnation(name)
        # A session of its own, or Ctrl-C would reach it twice: from the terminal and from here.
        child = await asyncio.create_subprocess_exec(
            *self._command,
            *("--name", name, "--incarnation", incarnation, "--parent", str(os.getpid())),
            env=self._environment_of(name),
            start_new_session=True,
        )
        self._children[name] = child
        if self._stopping.is_set():
            _send(child, self._stop_with)
        try:
            code = await child.wait()
        finally:
            del self._children[name]
        ordered = code == DONE and await self._was_ordered(incarnation, store)
        told = ordered or self._stopping.is_set() or code in self._final
        if code != DONE or not told:
            await self._bury(incarnation, store, died(code))
        return code, ordered

    async def _was_ordered(self, incarnation: str, store: LeaseStore) -> bool:
        """Whether a child says that it has drained by an order."""
        try:
            async with asyncio.timeout(FAREWELL_S):
                order = await store.read_order(incarnation)
        except (ChangeoverError, TimeoutError):
            return False
        return order is not None and order.drained is not None and not order.evicted

    async def _bury(self, incarnation: str, store: LeaseStore, why: str) -> None:
        try:
            async with asyncio.timeout(FAREWELL_S):
                count = await store.bury(incarnation, why=why)
        except (ChangeoverError, TimeoutError) as error:
            self._log.warning("warning", code="not_evicted", worker=incarnation, text=str(error))
        else:
            self._log.warning("warning", code="worker_evicted", worker=incarnation, sessions=count)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return


def _send(child: Process, number: signal.Signals) -> None:
    if child.returncode is None:
        child.send_signal(number)


def _as_sent(number: signal.Signals) -> signal.Signals:
    return signal.SIGTERM if number is signal.SIGINT else number


def _last_word(code: int) -> int:
    """A child's exit code while stopping: one that our signal met before it listened is drained,
    and one that died otherwise was stopped by force."""
    if code == -signal.SIGTERM:
        return DONE
    return code if code in (DONE, ENDED_BADLY, FORCED, MISCONFIGURED) else FORCED
