"""What stands between a worker and a model whose provider allows only so much."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from changeover_worker._models.model import Emit, ModelRequest, ModelResponse

Respond = Callable[[ModelRequest, Emit], Awaitable[ModelResponse]]


class Limited(Exception):
    """A model may not be asked yet, and was not."""

    def __init__(self, model: str, wait_ms: int) -> None:
        super().__init__(f"{model!r} has no room for {wait_ms} ms")
        self.model = model
        self.wait_ms = wait_ms


class Gate(Protocol):
    """Lets the requests of one model step through."""

    async def through(
        self, name: str, request: ModelRequest, emit: Emit, respond: Respond
    ) -> ModelResponse:
        """Ask the model of that name by `respond`. Raises `Limited` when it may not be asked."""
        ...
