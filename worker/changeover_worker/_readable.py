"""What came from outside, made fit for JSON: every later reader can read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAX_DEPTH: Final = 100
"""How deep a value may nest; JSON readers refuse about twice that."""


def readable(text: str) -> str:
    """Join surrogate pairs and replace single ones by U+FFFD: UTF-8 has no form for them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def readable_value(value: Any) -> Any:
    """The same for every text inside `value`, which nests at most `MAX_DEPTH` levels."""
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
