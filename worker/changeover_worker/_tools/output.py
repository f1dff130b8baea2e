"""What a tool returned, as JSON that every later reader can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import PydanticSerializationError, from_json, to_json

from changeover_shared._errors import ToolError
from changeover_shared._items import Json

MAX_BYTES: Final = 1024**2
"""How large a result may be, as JSON in UTF-8."""
MAX_DEPTH: Final = 100
"""How deep a result may nest; JSON readers refuse about twice that."""
MAX_ERROR: Final = 16 * 1024
"""How many characters of an error's text the model is shown."""


def as_json(value: Any) -> Json:
    """Return what `value` is in JSON: whatever pydantic can turn into it.

    NaN and infinities become strings, unpaired surrogates U+FFFD. Raises `ToolError` naming the
    type if JSON cannot hold it, or the size if it is too large.
    """
    body = _serialise(value)
    if len(body) > MAX_BYTES:
        raise ToolError(
            f"the tool ran, its result is {len(body)} bytes of JSON, the limit is {MAX_BYTES}; "
            "nothing of it was kept; ask for less"
        )
    try:
        result: Json = from_json(body)
    except ValueError as error:
        raise _unfit(value, str(error)) from error
    if _depth(result) > MAX_DEPTH:
        raise _unfit(value, f"it nests deeper than {MAX_DEPTH} levels")
    return result


def readable(text: str) -> str:
    """Return `text` fit for JSON and of bounded length."""
    whole = _whole(text)
    return whole if len(whole) <= MAX_ERROR else whole[: MAX_ERROR - 1] + "…"


def _serialise(value: Any) -> bytes:
    try:
        try:
            return to_json(value, inf_nan_mode="strings")
        except PydanticSerializationError as error:
            if "surrogates" not in str(error):
                raise
            return to_json(_mended(value), inf_nan_mode="strings")
    except PydanticSerializationError as error:
        raise _unfit(value, str(error).removeprefix("Error serializing to JSON: ")) from error


def _unfit(value: Any, reason: str) -> ToolError:
    return ToolError(
        f"the tool ran and returned a {type(value).__name__} that JSON cannot hold: {reason}"
    )


def _mended(value: Any) -> Any:
    match value:
        case str():
            return _whole(value)
        case Mapping():
            return {_mended(key): _mended(entry) for key, entry in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_mended(entry) for entry in value]
        case _:
            return value


def _whole(text: str) -> str:
    """Join surrogate pairs and replace single ones: UTF-8 has no form for them."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _depth(value: Json) -> int:
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
    return depth
