"""Stop tasks that run somebody else's code, whether or not they let themselves be stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

CLEAN_UP_S: Final = 2.0
"""How long a cancelled task may clean up before it is left behind: less than the default margin of
a lease, so that it is over before anybody else can be granted the session."""

_left_behind: set[asyncio.Task[Any]] = set()
"""Tasks that outlast their cancellation; the loop itself holds tasks only weakly."""


async def stop(tasks: Collection[asyncio.Task[Any]]) -> bool:
    """Cancel `tasks` and wait for their ends, at most two seconds; False if some go on.

    What they end with is not raised.
    """
    for task in tasks:
        if not task.done():
            task.cancel()
            _left_behind.add(task)
            task.add_done_callback(_forget)
    if tasks:
        await asyncio.wait(tasks, timeout=CLEAN_UP_S)
    return all(task.done() for task in tasks)


def _forget(task: asyncio.Task[Any]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()
