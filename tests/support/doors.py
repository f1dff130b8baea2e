"""A model that answers once a test opens its door."""

from __future__ import annotations

import asyncio

from changeover_shared._items import AssistantMessage
from changeover_worker import Agent, App, Emit, ModelRequest, ModelResponse, TextDelta


class Door:
    """The model of an app whose one agent is called `slow`."""

    name = "door"

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting: list[str] = []
        """The sessions that stand before it now."""

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        """Answer once the door is open."""
        self.waiting.append(request.session_id)
        try:
            await self.open.wait()
        finally:
            self.waiting.remove(request.session_id)
        await emit(TextDelta("done"))
        return ModelResponse(AssistantMessage(text="done"))

    def app(self) -> App:
        """An app that asks this model."""
        return App(agents=[Agent("slow", model="door")], models={"door": self})
