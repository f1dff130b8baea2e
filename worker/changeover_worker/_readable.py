"""What came from outside, made fit for JSON: every later reader can read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAX_DEPTH: Final = 100
"""How deep a value may nest; JSON readers refuse about twice that."""
MAX_ERROR: Final = 16 * 1024
"""How many characters of an error's text are kept."""


def readable(text: str) -> str:
    """Join surrogate pairs and replace single ones by U+FFFD: UTF-8 has no form for them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def error_text(text: str) -> str:
    """The same for what an error says, cut to `MAX_ERROR`: nobody chose how long it is."""
    whole = readable(text)
    return whole if len(whole) <= MAX_ERROR else whole[: MAX_ERROR - 1] + "…"


def readable_value(value: Any) -> Any:
    """Make every text inside `value` readable, which nests at most `MAX_DEPTH` levels."""
    match value:
        case str():
            return readable(value)
        case Mapping():
            return {readable_value(key): readable_value(entry) for key, entry in value.items()}
        case list() | tuple() | set() | frozenset():
            return [readable_value(entry) for entry in value]
        case _:
            return value


def too_deep(value: Any) -> bool:
    """Whether `value` nests deeper than `MAX_DEPTH` levels."""
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [
            child
            for node in level
            if isinstance(node, Mapping | list | tuple)
            for child in (node.values() if isinstance(node, Mapping) else node)
        ]
    return depth > MAX_DEPTH
