"""One worker in this process: its event loop, its signals and its exit code."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import signal
import sys
from types import FrameType

import uvloop
from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import ChangeoverError, Invalid, SetupError, StoreUnavailable
from changeover_shared._exit_codes import (
    BUG,
    DONE,
    ENDED_BADLY,
    FORCED,
    MISCONFIGURED,
    UNANSWERED,
)
from changeover_shared._settings import Settings
from changeover_worker._app import App
from changeover_worker._process import last_resort
from changeover_worker._process.last_resort import LastResort
from changeover_worker._process.service import ServiceManager
from changeover_worker._process.watchers import trace_as_environment_says
from changeover_worker._process.worker import Worker, WorkerEnd

_ORPHANED_S = 1.0


def serve(
    app: App,
    settings: Settings,
    url: str,
    log: FilteringBoundLogger,
    *,
    incarnation: str | None = None,
    parent: int | None = None,
    burst: bool = False,
    service: ServiceManager | None = None,
) -> int:
    """Run a worker until it is drained; the exit code. Takes over the process's signals.

    The process ends a few seconds later at the latest, whatever tools have left behind.
    `parent` is the process id of a supervisor: the worker drains when that is gone.
    """
    # A turn leaves no cycles behind, and what is imported lives as long as the process: looking
    # for garbage as often as Python does by default was a tenth of a worker's time.
    trace_as_environment_says(log)
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(app, settings, url, log, incarnation, parent, burst, service))


async def _serve(
    app: App,
    settings: Settings,
    url: str,
    log: FilteringBoundLogger,
    incarnation: str | None,
    parent: int | None,
    burst: bool,
    service: ServiceManager | None,
) -> int:
    worker = Worker(
        app, settings, url, incarnation=incarnation, burst=burst, log=log, service=service
    )
    stop = _Stop(worker, LastResort(log), settings)
    worker.on_order = stop.ordered
    _heed_signals(worker, stop)
    orphaned = None if parent is None else asyncio.create_task(_watch(parent, stop))
    code = BUG
    try:
        code = exit_code(await worker.run(), burst=burst)
    except ChangeoverError as error:
        code = exit_code_of(error)
        raise
    finally:
        stop.last_resort.end_within(last_resort.LEFT_S, code)
        if orphaned is not None:
            orphaned.cancel()
    return code


def exit_code(end: WorkerEnd, *, burst: bool) -> int:
    """What the process says of how its worker ended."""
    if end.forced:
        return FORCED
    return ENDED_BADLY if burst and end.failed_turns else DONE


def exit_code_of(error: ChangeoverError) -> int:
    """What the process says when its worker could not begin."""
    if isinstance(error, SetupError | Invalid):
        return MISCONFIGURED
    return UNANSWERED if isinstance(error, StoreUnavailable) else BUG


class _Stop:
    """Tells a worker to stop, and sees to it that the process does."""

    def __init__(self, worker: Worker, resort: LastResort, settings: Settings) -> None:
        self.last_resort = resort
        self._worker = worker
        self._drain_s = settings.drain_grace.total_seconds() + last_resort.DRAINED_S
        self._asked = False

    def noticed(self, number: int, frame: FrameType | None) -> None:
        """Take the time of a signal. Called between two bytecodes, also while the loop is
        blocked; the worker is told by the loop."""
        forced = self._asked or number == signal.SIGQUIT
        self._asked = True
        within_s = last_resort.FORCED_S if forced else self._drain_s
        self.last_resort.end_within(within_s, FORCED)

    def ordered(self, grace_s: float) -> None:
        """See to it that an order to stop is carried out."""
        self.last_resort.end_within(grace_s + last_resort.DRAINED_S, FORCED)

    def orphaned(self) -> None:
        self.noticed(signal.SIGTERM, None)
        self._worker.drain("the supervisor is gone")


def _heed_signals(worker: Worker, stop: _Stop) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.drain, signal.Signals(number).name)
    loop.add_signal_handler(signal.SIGQUIT, worker.force, "SIGQUIT")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        # The loop learns of a signal by a descriptor and leaves the handler itself empty.
        signal.signal(number, stop.noticed)
        signal.siginterrupt(number, False)
    loop.add_signal_handler(signal.SIGUSR1, worker.pause)
    loop.add_signal_handler(signal.SIGUSR2, _dump_tasks)
    # Chained in front, so that the stacks are dumped even while the loop is blocked.
    faulthandler.register(signal.SIGUSR2, all_threads=True, chain=True)


def _dump_tasks() -> None:
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()


async def _watch(parent: int, stop: _Stop) -> None:
    """Drain when the parent is another one than the supervisor, which may have died already."""
    while True:
        if os.getppid() != parent:
            stop.orphaned()
            return
        await asyncio.sleep(_ORPHANED_S)
