"""The threads in which `def` tools run: as many as are wanted, up to a limit for the process."""

from __future__ import annotations

import asyncio
from typing import Final

LIMIT: Final = 256
"""How many calls of `def` tools run at once in one worker process."""
WAIT_S: Final = 60.0
"""How long a call waits for a thread before it is refused; its own timeout starts after that."""


class Threads:
    """Places for threads. Used on one event loop.

    A place belongs to a call, not to its thread: a tool that hangs beyond its timeout, or whose
    call was stopped, gives its place back, so that tools that hang never use them up.
    """

    def __init__(self, limit: int = LIMIT, wait_s: float = WAIT_S) -> None:
        self.wait_s = wait_s
        self._places = asyncio.Semaphore(limit)

    async def take(self) -> bool:
        """Take a place as soon as there is one, first come first served; False if none came."""
        try:
            async with asyncio.timeout(self.wait_s):
                await self._places.acquire()
        except TimeoutError:
            return False
        return True

    def give_back(self) -> None:
        """Leave a place to the next call."""
        self._places.release()
