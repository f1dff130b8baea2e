"""The code on the page about models does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from changeover_shared._items import UserMessage
from changeover_worker import App
from tests.support.asking import ask

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")


def code(number: int) -> dict[str, Any]:
    """Run a block of code of the page, and return its names."""
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.S)[number], names)
    return names


def test_the_app_of_the_page_can_be_made() -> None:
    app = code(0)["app"]

    assert isinstance(app, App)
    assert app.model_names == ("main", "local")
    assert app.model("local").name == "openai@http://127.0.0.1:8000/v1:llama3"


async def test_the_model_of_the_page_answers() -> None:
    asked = await ask(code(1)["Echo"](), UserMessage(text="so it is"))

    assert asked.streamed == asked.response.message.text == "so it is "
