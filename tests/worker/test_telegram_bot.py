"""The bot of examples/, and the agent that docs/chat-gateway.md shows, stopped at every point."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any

import httpx2
import pytest
from examples.telegram_bot import LONGEST, assistant

from changeover_shared._items import ToolResult
from changeover_worker import Agent, App, ModelRequest
from changeover_worker.testing import ScriptedAnswer, ScriptedModel, User, call, say, sweep
from tests.support.processes import ROOT

PAGE = (ROOT / "docs" / "chat-gateway.md").read_text("utf-8")
PARTS = ("a" * LONGEST, "b")


class Sent:
    """What Telegram was told, in one run of a scenario."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def app(self, model: Callable[[ModelRequest], ScriptedAnswer], *agents: Agent) -> App:
        """A fresh app, whose Telegram forgets."""
        self.messages.clear()

        def hear(request: httpx2.Request) -> httpx2.Response:
            self.messages.append(json.loads(request.content))
            return httpx2.Response(200, json={"result": {"message_id": len(self.messages)}})

        @asynccontextmanager
        async def lifespan(app: App) -> AsyncIterator[httpx2.AsyncClient]:
            transport = httpx2.MockTransport(hear)
            async with httpx2.AsyncClient(transport=transport, base_url="http://t/") as telegram:
                yield telegram

        return App(
            models={"main": ScriptedModel.by(model, chunk=LONGEST)},
            agents=agents,
            lifespan=lifespan,
        )

    def in_order(self) -> list[str]:
        """The texts, with those that were sent again at once as one."""
        return [text for text, _ in groupby(message["text"] for message in self.messages)]


async def hello(user: User, reply_to: str | None = "telegram") -> None:
    asked = await user.submit("Hello", reply_to=reply_to, context={"chat": "7"})
    assert await user.ended(asked) == "completed"


@pytest.mark.timeout(300)
async def test_each_part_of_an_answer_is_sent_wherever_the_bots_worker_is_stopped() -> None:
    """In order, and again only if its worker was stopped while it was sent."""
    sent = Sent()

    def bot() -> App:
        app = sent.app(lambda request: say("".join(PARTS)))
        app.handler("assistant")(assistant)
        return app

    async def scenario(user: User) -> None:
        await hello(user)
        assert sent.in_order() == list(PARTS)
        assert len(sent.messages) <= len(PARTS) + 1
        assert {message["chat_id"] for message in sent.messages} == {"7"}

    report = await sweep(scenario, bot)
    assert report.cases > 0


async def test_what_names_no_channel_is_answered_and_not_sent() -> None:
    sent = Sent()

    def bot() -> App:
        app = sent.app(lambda request: say("ok"))
        app.handler("assistant")(assistant)
        return app

    async def scenario(user: User) -> None:
        await hello(user, reply_to=None)
        assert sent.messages == []

    await sweep(scenario, bot, only="commit#1 after kill")


@pytest.mark.timeout(300)
async def test_the_agent_of_the_page_answers_by_its_tool_wherever_its_worker_is_stopped() -> None:
    sent = Sent()
    names: dict[str, Any] = {}
    (block,) = (one for one in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "Agent(" in one)
    exec(block, names)

    def answer(request: ModelRequest) -> ScriptedAnswer:
        assert not isinstance(request.items[-1], ToolResult), "the tool has ended the turn"
        return call("reply", text="From quay 3.")

    async def scenario(user: User) -> None:
        await hello(user)
        assert sent.in_order() == ["From quay 3."]
        assert len(sent.messages) <= 2

    report = await sweep(scenario, lambda: sent.app(answer, names["agent"]))
    assert report.cases > 0
