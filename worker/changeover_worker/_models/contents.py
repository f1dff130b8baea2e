"""What every dialect needs to say a conversation in its own words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, cast
from urllib.parse import urlsplit

from changeover_shared._items import AssistantMessage, Attachment, ToolCall, ToolResult
from changeover_worker._readable import readable_value, too_deep

_IMAGES: Final = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp"})


@dataclass(frozen=True, slots=True)
class Text:
    """A stretch of an assistant's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """A provider's own block, to be sent back as it came."""

    block: dict[str, Any]


def opaque_entry(provider: str, block: dict[str, Any], *, chars: int, calls: int) -> dict[str, Any]:
    """Keep `block` with its place: behind `chars` characters of text and `calls` tool calls."""
    return {"provider": provider, "chars": chars, "calls": calls, "block": block}


def parts(message: AssistantMessage, provider: str) -> Iterator[Text | ToolCall | Opaque]:
    """Take an assistant's message apart in the order in which `provider` said it.

    Blocks of other providers are left out. Blank text is left out: some providers refuse it.
    """
    chars = calls = 0
    for entry in message.opaque:
        if entry.get("provider") != provider:
            continue
        if message.text[chars : entry["chars"]].strip():
            yield Text(message.text[chars : entry["chars"]])
        yield from message.tool_calls[calls : entry["calls"]]
        yield Opaque(entry["block"])
        chars, calls = entry["chars"], entry["calls"]
    if message.text[chars:].strip():
        yield Text(message.text[chars:])
    yield from message.tool_calls[calls:]


def arguments_object(text: str) -> dict[str, Any]:
    """Read a call's arguments; what is no JSON object is wrapped, since providers refuse it, and
    so is one that nests too deep to be written again."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {"unparsed": text}
    if not isinstance(value, dict) or too_deep(value):
        return {"unparsed": text}
    return cast(dict[str, Any], readable_value(value))


def arguments_text(text: str) -> str:
    """The same as JSON text, unchanged if it is a JSON object."""
    return text if is_whole(text) else json.dumps(arguments_object(text))


def is_whole(text: str) -> bool:
    """Whether the arguments of a call are a JSON object to the end."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def result_text(result: ToolResult) -> str:
    """Say a tool result as text: strings as they are, all else as JSON."""
    if isinstance(result.output, str):
        return result.output
    return json.dumps(result.output, ensure_ascii=False)


def marked_result_text(result: ToolResult) -> str:
    """The same for dialects that have no mark for errors."""
    text = result_text(result)
    return f"error: {text}" if result.is_error else text


def is_image(attachment: Attachment) -> bool:
    """Whether it can be shown to a model as an image by its address."""
    address = urlsplit(attachment.url)
    if address.scheme not in ("http", "https"):
        return False
    if attachment.media_type is not None:
        return attachment.media_type.startswith("image/")
    return PurePosixPath(address.path).suffix.lower() in _IMAGES


def attachment_line(attachment: Attachment) -> str:
    """Name a file that a dialect cannot show."""
    told = ", ".join(part for part in (attachment.name, attachment.media_type) if part)
    return f"[attachment: {attachment.url} ({told})]" if told else f"[attachment: {attachment.url}]"
