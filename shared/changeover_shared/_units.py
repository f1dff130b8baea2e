"""Durations and sizes as people write them: `30s`, `5m`, `1MiB`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import BeforeValidator

from changeover_shared._errors import Invalid

Duration = timedelta | str
"""A span of time: a `timedelta`, or text such as `"500ms"`, `"30s"`, `"5m"`, `"2h"`, `"7d"`."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB)?")
_BYTES = {None: 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def duration(value: Duration, *, field: str = "duration") -> timedelta:
    """Return `value` as a `timedelta`; raises `Invalid` if it is not a span of time >= 0."""
    if isinstance(value, timedelta):
        if value < timedelta(0):
            raise Invalid(field=field, reason=f"{value} is negative")
        return value
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise Invalid(
            field=field, reason=f"{value!r} is no duration; write 500ms, 30s, 5m, 2h or 7d"
        )
    try:
        return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])
    except OverflowError:
        raise Invalid(field=field, reason=f"{value!r:.40} is longer than time can be") from None


def milliseconds(value: Duration, *, field: str = "duration") -> int:
    """Return `value` in whole milliseconds."""
    return round(duration(value, field=field) / timedelta(milliseconds=1))


def read_time(text: str, *, field: str = "at") -> datetime:
    """Read a time as ISO 8601 writes it, with its zone: `2026-12-01T09:00+01:00`.

    Raises `Invalid`.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.utcoffset() is None:
        reason = f"{text!r:.80} is no time with a zone; write 2026-12-01T09:00+01:00"
        raise Invalid(field=field, reason=reason)
    return found


def size(value: int | str, *, field: str = "size") -> int:
    """Return `value` in bytes; raises `Invalid` if it is no size."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise Invalid(field=field, reason=f"{value!r} is no size; write 4096, 64KiB or 8MiB")
    return int(found[1]) * _BYTES[found[2]]


def show_duration(value: timedelta) -> str:
    """Say a span of time the way people write it: `0.2 s`, `41 s`, `3 m`, `2 h`, `5 d`."""
    seconds = value.total_seconds()
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, span, limit in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800)):
        if seconds < limit:
            return f"{seconds / span:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


Span = Annotated[timedelta, BeforeValidator(lambda value: duration(value))]
"""A settings field that takes a duration."""

NEVER = "never"
"""Instead of a span of time: what is kept until somebody takes it."""


def unless_never(value: Duration | None, *, field: str = "duration") -> timedelta | None:
    """Return `value` as a `timedelta`, or None for `"never"`; raises `Invalid` for other texts."""
    return None if value is None or value == NEVER else duration(value, field=field)


Keep = Annotated[timedelta | None, BeforeValidator(lambda value: unless_never(value))]
"""A settings field that takes a duration, or `never`."""

Size = Annotated[int, BeforeValidator(lambda value: size(value))]
"""A settings field that takes a size in bytes."""
