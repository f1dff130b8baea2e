"""What the page on chat gateways shows is what runs."""

from __future__ import annotations

import re
from typing import Any

import fakeredis
import pytest

from changeover import Receipt
from changeover_shared._events import Event
from tests.support.processes import ROOT

PAGE = (ROOT / "docs" / "chat-gateway.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize("name", ["gateway.py", "telegram_bot.py"])
def test_the_page_shows_the_examples_as_they_are(name: str) -> None:
    assert (ROOT / "examples" / name).read_text("utf-8") in BLOCKS


def function(name: str) -> Any:
    """A function that a block of the page defines."""
    (block,) = (block for block in BLOCKS if f"async def {name}(" in block)
    names: dict[str, Any] = {}
    exec(block, names)
    return names[name]


async def test_a_message_belongs_to_the_newest_conversation_before_it_whenever_it_is_brought() -> (
    None
):
    redis = fakeredis.FakeAsyncRedis()
    session_of = function("session_of")

    async def sessions(*messages: tuple[int, str]) -> list[str]:
        return [await session_of(redis, 7, number, text) for number, text in messages]

    said = [(1, "hello"), (5, "/new"), (6, "hello"), (9, "/new"), (10, "hello")]
    first = await sessions(*said)
    assert first == ["telegram:7", "telegram:7:5", "telegram:7:5", "telegram:7:9", "telegram:7:9"]
    assert await sessions(*reversed(said)) == first[::-1]
    assert await session_of(redis, 8, 6, "hello") == "telegram:8"
    await redis.aclose()


async def test_typing_is_shown_while_a_message_is_answered_and_not_for_each_event() -> None:
    class Client:
        async def follow(self, session: str, *, after: int, until: str) -> Any:
            assert (session, after, until) == ("telegram:7", 3, "m")
            for seq in range(4, 40):
                yield Event(seq=seq)

    shown = []

    async def show() -> None:
        shown.append("typing")

    receipt = Receipt(session_id="telegram:7", submission_id="m", answer="accepted", seq=3)
    await function("typing")(Client(), receipt, show)
    assert shown == ["typing"]
