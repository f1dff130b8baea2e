"""What every dialect needs to say a conversation in its own words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, cast
from urllib.parse import urlsplit

from changeover_shared._items import AssistantMessage, Attachment, ToolCall, ToolResult
from changeover_worker._readable import readable_value, too_deep

_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME: Final = 64
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


def plain(word: str) -> str:
    """The word without characters that a name or an id may not have everywhere."""
    return _FOREIGN.sub("_", word)


def call_name(name: str) -> str:
    """Say which tool was called; a model makes names up that every provider refuses to read
    again, and with them the whole conversation. Names of tools that there are stay as they are."""
    return plain(name)[:_LONGEST_NAME] or "unnamed"


def arguments_object(text: str) -> dict[str, Any]:
    """Read a call's arguments; what is no JSON object is wrapped, since providers refuse it, and
    so is one that cannot be written again: it nests too deep, or holds what is no number."""
    try:
        value = json.loads(text or "{}", parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return {"unparsed": text}
    if not isinstance(value, dict) or too_deep(value):
        return {"unparsed": text}
    return cast(dict[str, Any], readable_value(value))


def arguments_text(text: str) -> str:
    """The same as JSON text, unchanged if it is a JSON object."""
    value = arguments_object(text)
    return text if text and value != {"unparsed": text} else json.dumps(value)


def is_whole(text: str) -> bool:
    """Whether the arguments of a call are a JSON object to the end."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _finite(text: str) -> float:
    """Read a number; Python alone writes NaN and infinities, and reads them from JSON."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number")
    return value


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
