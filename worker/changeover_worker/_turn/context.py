"""What a model is shown: a rewritten prefix and the transcript after it."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter
from pydantic_core import to_json

from changeover_shared._items import Item

_PREFIX: TypeAdapter[list[Item]] = TypeAdapter(list[Item])


def decode_prefix(body: bytes | str | None) -> tuple[Item, ...]:
    """Read a rewritten prefix. Raises `ValueError` for one that is missing or damaged."""
    if body is None:
        raise ValueError("the rewritten context is missing")
    return tuple(_PREFIX.validate_json(body))


def encode_prefix(items: Sequence[Item]) -> str:
    """Write a rewritten prefix."""
    return to_json(list(items)).decode()
