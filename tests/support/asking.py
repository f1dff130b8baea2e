"""Asks a model one question, as a worker would."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from changeover_shared._items import Item, UserMessage
from changeover_worker._models import AnthropicModel, OpenAIModel
from changeover_worker._models.model import (
    ModelDelta,
    ModelError,
    ModelRequest,
    ModelResponse,
    ProviderModel,
    TextDelta,
    ToolSpec,
)
from tests.support.model_server import ModelServer, Reply

LOOKUP = ToolSpec(
    "lookup", "Look a key up.", {"type": "object", "properties": {"key": {"type": "string"}}}
)


@dataclass(frozen=True)
class Asked:
    """What came of a question."""

    response: ModelResponse
    deltas: list[ModelDelta]

    @property
    def streamed(self) -> str:
        """The text as a follower saw it."""
        return "".join(delta.text for delta in self.deltas if isinstance(delta, TextDelta))

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """The calls as id, name and arguments."""
        return [
            (call.call_id, call.name, call.arguments) for call in self.response.message.tool_calls
        ]


def question(*items: Item, instructions: str = "Be brief.") -> ModelRequest:
    """A request with one tool; without items, somebody says hello."""
    return ModelRequest(instructions, items or (UserMessage(text="hello"),), (LOOKUP,))


async def ask(model: Any, *items: Item) -> Asked:
    """Ask and collect the deltas."""
    deltas: list[ModelDelta] = []

    async def emit(delta: ModelDelta) -> None:
        deltas.append(delta)

    return Asked(await model.respond(question(*items), emit), deltas)


async def fails(model: Any, *items: Item) -> ModelError:
    """Ask and return the error."""
    with pytest.raises(ModelError) as caught:
        await ask(model, *items)
    return caught.value


KEY = "very-secret-0123456789"


@asynccontextmanager
async def asked_of(
    api: str, *script: Reply, silence: str = "10s"
) -> AsyncIterator[tuple[ProviderModel, ModelServer]]:
    """A model of one dialect (`chat`, `responses`, `messages`) before a scripted server."""
    async with ModelServer(*script) as server:
        model: ProviderModel
        if api == "messages":
            model = AnthropicModel("m", base_url=server.origin, api_key=KEY, timeout=silence)
        else:
            dialect: Any = api
            model = OpenAIModel("m", base_url=server.url, api_key=KEY, api=dialect, timeout=silence)
        try:
            yield model, server
        finally:
            await model.aclose()
