"""Large tool results: whole in the transcript, shown to the model as head, note and tail.

What is shown of an item depends on the item alone, so it is the same in every request and on
every worker. `read_result` reads the rest by page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from changeover_shared._errors import ToolError
from changeover_shared._items import AnyItem, Item, ToolResult, UserMessage
from changeover_worker._models.contents import result_text
from changeover_worker._models.model import ToolSpec
from changeover_worker._turn.context import NARRATOR

READ_RESULT: Final = "read_result"
"""The tool's name; an app has none of this name."""
WHOLE_BYTES: Final = 64 * 1024
"""Up to this size a result is shown whole."""
HEAD_BYTES: Final = 16 * 1024
TAIL_BYTES: Final = 8 * 1024
PAGE_BYTES: Final = 32 * 1024

SPEC: Final = ToolSpec(
    name=READ_RESULT,
    description=(
        "Read a page of an earlier tool result that was too large to be shown whole. "
        "Its note says which item it is and how many pages there are."
    ),
    parameters={
        "type": "object",
        "properties": {
            "item": {"type": "integer", "description": "The number in the note of the result."},
            "page": {"type": "integer", "description": "Which page, from 1 on."},
        },
        "required": ["item", "page"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a call of `read_result` asks for."""

    item: int
    page: int


def shortened(n: int, result: ToolResult) -> ToolResult:
    """What is shown of transcript item `n`: the same object if it is shown whole."""
    text = _bytes(result)
    if len(text) <= WHOLE_BYTES:
        return result
    head = text[: _boundary(text, HEAD_BYTES)].decode()
    tail = text[_boundary(text, len(text) - TAIL_BYTES) :].decode()
    pages = _pages(text)
    note = (
        f"\n[... {len(text)} bytes in all, the middle is left out here; "
        f"{_reads(n)} reads page 1 of {pages} ...]\n"
    )
    return result.model_copy(update={"output": head + note + tail})


def is_offered(items: Iterable[Item], cut: Iterable[int]) -> bool:
    """Whether a context tells of something that `read_result` can read: a result that is shown
    in part, or one that a summary names."""
    return any(True for _ in cut) or any(
        isinstance(item, UserMessage) and item.author == NARRATOR and f"{READ_RESULT}(" in item.text
        for item in items
    )


def named(n: int, result: ToolResult) -> str:
    """One line that says how a large result is read after a summary has replaced it."""
    return f"- {result.name}: {_reads(n)} reads page 1 of {_pages(_bytes(result))}"


def parse(arguments: str) -> Asked:
    """Read a call's arguments. Raises `ToolError` for what names no page."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        given = None
    item, page = (given.get("item"), given.get("page")) if isinstance(given, dict) else (0, 0)
    if not (type(item) is int and type(page) is int and item > 0 and page > 0):
        raise ToolError("read_result takes item and page, whole numbers from 1 on")
    return Asked(item, page)


def page(asked: Asked, item: AnyItem | None) -> str:
    """The page that was asked for. Raises `ToolError` if there is none such."""
    if not isinstance(item, ToolResult):
        raise ToolError(
            f"item {asked.item} is no tool result; the notes of large results name them"
        )
    text = _bytes(item)
    pages = _pages(text)
    if asked.page > pages:
        raise ToolError(f"item {asked.item} has {pages} pages, there is no page {asked.page}")
    start = _boundary(text, (asked.page - 1) * PAGE_BYTES)
    end = _boundary(text, asked.page * PAGE_BYTES)
    return f"[item {asked.item}, page {asked.page} of {pages}]\n{text[start:end].decode()}"


def _bytes(result: ToolResult) -> bytes:
    return result_text(result).encode("utf-8", "replace")


def _pages(text: bytes) -> int:
    return max(1, -(-len(text) // PAGE_BYTES))


def _boundary(text: bytes, at: int) -> int:
    """The last place up to `at` that cuts no character in two."""
    if at >= len(text):
        return len(text)
    while at > 0 and text[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _reads(n: int) -> str:
    return f"{READ_RESULT}(item={n}, page=1)"
