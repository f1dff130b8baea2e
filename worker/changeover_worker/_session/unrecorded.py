"""A model step that is not recorded: what the writer of a summary streams is no answer."""

from __future__ import annotations

from typing import Any

from changeover_worker._models.model import EmitRefused, ModelDelta
from changeover_worker._turn.draft import NO_TAIL, Tail


class Unrecorded:
    """Takes a step's deltas and keeps nothing of them."""

    def __init__(self) -> None:
        self.stamp: dict[str, Any] = {}
        self._stopped = False

    async def emit(self, delta: ModelDelta) -> None:
        """Take a piece. Raises `EmitRefused` once the step has ended."""
        if self._stopped:
            raise EmitRefused("the step has ended; the text was dropped; stop streaming")

    def stop(self) -> None:
        """Take nothing more from here on."""
        self._stopped = True

    async def close(self) -> Tail:
        """End the step; it leaves nothing behind."""
        self.stop()
        return NO_TAIL
