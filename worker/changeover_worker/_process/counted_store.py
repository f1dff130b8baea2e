"""What is counted of the store's answers."""

from __future__ import annotations

from typing import Any, Final

from changeover_shared._store.requests import Request
from changeover_worker._process.instruments import Instruments

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_BYTES: Final = (256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0)
_REPEATED: Final = frozenset({("commit", "REPLAY"), ("settle", "REPLAY"), ("append", "ALREADY")})
"""What a script says of something that it has done before."""


class StoreCounts:
    """Counts replies."""

    def __init__(self, made: Instruments) -> None:
        self._repeats = made.counter(
            "repeats_answered_total",
            "Writes whose first answer was lost: asked again, and not done twice.",
            ("script",),
            tuple(sorted({name for name, _ in _REPEATED})),
        )
        self._seconds = made.histogram(
            "commit_seconds", "How long Redis took for a commit.", (), _SECONDS
        )
        self._bytes = made.histogram("commit_bytes", "What a commit came to.", (), _BYTES)
        self._trims = made.counter(
            "journal_trims_total", "How often retention shortened a session."
        )

    def replied(self, request: Request, reply: list[Any], seconds: float) -> None:
        """Count one reply."""
        name, word = request.name, str(reply[0])
        if (name, word) in _REPEATED:
            self._repeats.labels(name).inc()
        if name in ("commit", "settle") and word in ("OK", "REPLAY"):
            self._seconds.observe(seconds)
            self._bytes.observe(_size(request))
        if name == "trim" and word == "OK":
            self._trims.inc()


def _size(request: Request) -> int:
    """What a request carries; numbers count as nothing."""
    rows = (row for rows in (request.lists or {}).values() for row in rows)
    values = (*request.args.values(), *(value for row in rows for value in row))
    return sum(len(value) for value in values if isinstance(value, str | bytes))
