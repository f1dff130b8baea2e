"""Notice that a Python file below a directory has changed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

LOOK_S: Final = 0.5
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})

Seen = dict[str, tuple[int, int]]
"""A file's path -> when it was written, in nanoseconds, and its size."""


class Changes:
    """What has changed since the last look; nothing between two looks is missed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen = look(directory)

    async def next(self) -> str:
        """Wait until a `.py` file appears, changes or goes; its path below the directory."""
        while True:
            await asyncio.sleep(LOOK_S)
            now = await asyncio.to_thread(look, self._directory)
            changed = {path for path, _ in self._seen.items() ^ now.items()}
            self._seen = now
            if changed:
                return str(Path(min(changed)).relative_to(self._directory))


def look(directory: Path) -> Seen:
    """Every Python file under a directory, without hidden folders and installed packages."""
    seen: Seen = {}
    for folder, below, names in os.walk(directory):
        below[:] = [name for name in below if name not in _SKIPPED and not name.startswith(".")]
        for name in names:
            if name.endswith(".py"):
                path = Path(folder, name)
                try:
                    status = path.stat()
                except FileNotFoundError:
                    continue
                seen[str(path)] = (status.st_mtime_ns, status.st_size)
    return seen
