"""The tool calls of one model step: run at once, handed over as they land."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from typing import Any, Final

from pydantic_core import to_json

from changeover_shared._checkpoint import PendingCall
from changeover_shared._items import ToolResult
from changeover_worker._session.held import Held
from changeover_worker._stopping import stop
from changeover_worker._tools.context import StopSignal, ToolStopped
from changeover_worker._turn.ending import UNKNOWN
from changeover_worker._turn.execution import error_result

AT_ONCE_BYTES: Final = 4 * 1024**2
"""So much of results that land together is handed over at once, or one result. A commit has each
of them twice, beside those that landed before."""

RunCall = Callable[[PendingCall, StopSignal], Coroutine[Any, Any, ToolResult]]


async def run_group(
    calls: Sequence[PendingCall], run: RunCall, held: Held
) -> AsyncGenerator[tuple[ToolResult, ...], None]:
    """Run `calls` side by side and yield the results that have landed, in call order.

    Ends early when the session has to stop: what had ended by then was yielded, the rest was
    cancelled and has no result.
    """
    signal = StopSignal()
    loop = asyncio.get_running_loop()
    tasks = {loop.create_task(run(call, signal)): call for call in calls}
    held.running(tasks)
    open_tasks = set(tasks)
    try:
        while open_tasks:
            await asyncio.wait(open_tasks, return_when=asyncio.FIRST_COMPLETED)
            landed = [task for task in tasks if task in open_tasks and task.done()]
            open_tasks.difference_update(landed)
            ends = (_result(task, tasks[task], held) for task in landed)
            results = tuple(end for end in ends if end is not None)
            if held.stopped:
                signal.set("the turn was stopped")
            for portion in _portions(results):
                yield portion
    finally:
        signal.set("the turn was stopped")
        held.running(())
        await stop(open_tasks)


def _result(task: asyncio.Task[ToolResult], call: PendingCall, held: Held) -> ToolResult | None:
    if not task.cancelled() and not isinstance(task.exception(), ToolStopped):
        return task.result()
    # Without a result and not stopped by us, it may have run all the same: never run it twice.
    return None if held.stopped else error_result(call, UNKNOWN, unknown=True)


def _portions(results: tuple[ToolResult, ...]) -> Iterator[tuple[ToolResult, ...]]:
    """Results of bounded size, in their order."""
    portion: list[ToolResult] = []
    size = 0
    for result in results:
        more = len(to_json(result.output))
        if portion and size + more > AT_ONCE_BYTES:
            yield tuple(portion)
            portion, size = [], 0
        portion.append(result)
        size += more
    if portion:
        yield tuple(portion)
