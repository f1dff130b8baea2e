"""One worker in this process: its event loop, its signals and its exit code."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import signal
import sys

import uvloop
from structlog.typing import FilteringBoundLogger

from changeover_shared._exit_codes import DONE, ENDED_BADLY, FORCED
from changeover_shared._settings import Settings
from changeover_worker._app import App
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
) -> int:
    """Run a worker until it is drained; the exit code. Takes over the process's signals.

    `parent` is the process id of a supervisor: the worker drains when that is gone.
    """
    # A turn leaves no cycles behind, and what is imported lives as long as the process: looking
    # for garbage as often as Python does by default was a tenth of a worker's time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(app, settings, url, log, incarnation, parent, burst))


async def _serve(
    app: App,
    settings: Settings,
    url: str,
    log: FilteringBoundLogger,
    incarnation: str | None,
    parent: int | None,
    burst: bool,
) -> int:
    worker = Worker(app, settings, url, incarnation=incarnation, burst=burst, log=log)
    _heed_signals(worker)
    orphaned = None if parent is None else asyncio.create_task(_watch(parent, worker))
    try:
        return exit_code(await worker.run(), burst=burst)
    finally:
        if orphaned is not None:
            orphaned.cancel()


def exit_code(end: WorkerEnd, *, burst: bool) -> int:
    """What the process says of how its worker ended."""
    if end.forced:
        return FORCED
    return ENDED_BADLY if burst and end.failed_turns else DONE


def _heed_signals(worker: Worker) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.drain, signal.Signals(number).name)
    loop.add_signal_handler(signal.SIGQUIT, worker.force, "SIGQUIT")
    loop.add_signal_handler(signal.SIGUSR1, worker.pause)
    loop.add_signal_handler(signal.SIGUSR2, _dump_tasks)
    # Chained in front, so that the stacks are dumped even while the loop is blocked.
    faulthandler.register(signal.SIGUSR2, all_threads=True, chain=True)


def _dump_tasks() -> None:
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()


async def _watch(parent: int, worker: Worker) -> None:
    """Drain when the parent is another one than the supervisor, which may have died already."""
    while True:
        if os.getppid() != parent:
            worker.drain("the supervisor is gone")
            return
        await asyncio.sleep(_ORPHANED_S)
