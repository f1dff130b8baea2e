"""What a tool returned, as JSON that every later reader can read."""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import PydanticSerializationError, from_json, to_json

from changeover_shared._errors import ToolError
from changeover_shared._items import Json
from changeover_worker._readable import MAX_DEPTH, readable_value, too_deep

MAX_BYTES: Final = 1024**2
"""How large a result may be, as JSON in UTF-8."""


def as_json(value: Any, *, ran: str = "the tool") -> Json:
    """Return what `value`, which `ran` returned, is in JSON: whatever pydantic can turn into it.

    NaN and infinities become strings, unpaired surrogates U+FFFD. Raises `ToolError` naming the
    type if JSON cannot hold it, or the size if it is too large.
    """
    body = _serialise(value, ran)
    if len(body) > MAX_BYTES:
        raise ToolError(
            f"{ran} ran, its result is {len(body)} bytes of JSON, the limit is {MAX_BYTES}; "
            "nothing of it was kept; ask for less"
        )
    try:
        result: Json = from_json(body)
    except ValueError as error:
        raise _unfit(value, ran, str(error)) from error
    if too_deep(result):
        raise _unfit(value, ran, f"it nests deeper than {MAX_DEPTH} levels")
    return result


def _serialise(value: Any, ran: str) -> bytes:
    try:
        try:
            return to_json(value, inf_nan_mode="strings")
        except PydanticSerializationError as error:
            if "surrogates" not in str(error):
                raise
            return to_json(readable_value(value), inf_nan_mode="strings")
    except PydanticSerializationError as error:
        reason = str(error).removeprefix("Error serializing to JSON: ")
        raise _unfit(value, ran, reason) from error


def _unfit(value: Any, ran: str, reason: str) -> ToolError:
    return ToolError(
        f"{ran} ran and returned a {type(value).__name__} that JSON cannot hold: {reason}"
    )
