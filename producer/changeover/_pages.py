"""Places in what a session or a fleet holds: cursors, limits, and where the next page begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from changeover_shared._errors import Invalid
from changeover_shared._identifiers import identifier
from changeover_shared._items import MAX_COUNT
from changeover_shared._results import Page

MAX_LIMIT = 1000
_DIGITS = len(str(MAX_COUNT))

After = int | Literal["start", "now"]
"""The number of the last event that was seen, or where to begin."""

T = TypeVar("T")


def checked_after(after: After) -> After:
    """Return where to begin; raises `Invalid`."""
    if after not in ("start", "now") and (isinstance(after, str) or whole_number(after) is None):
        reason = f"{_shown(after)} is no event number, 'start' or 'now'"
        raise Invalid(field="after", reason=reason)
    return after


def first_cursor(after: After, newest: int) -> int:
    """The number of the last event that a follower is not to see."""
    if isinstance(after, int):
        return after
    return 0 if after == "start" else newest


def checked_limit(limit: int) -> int:
    """Return how many items a page may have; raises `Invalid`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise Invalid(field="limit", reason=f"{_shown(limit)} is not between 1 and {MAX_LIMIT}")
    return limit


def whole_number(value: object) -> int | None:
    """Read a number that something can have; neither Redis nor Python reads a larger one."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS:
        value = int(value)
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        return None
    return value


def number_before(before: int | str | None) -> int | None:
    """Read the number that a page ends before; raises `Invalid`."""
    if before is None:
        return None
    number = whole_number(before)
    if number is None:
        raise Invalid(field="before", reason=f"{_shown(before)} is no number of an item")
    return number


def page_of(items: Sequence[T], limit: int, number: Callable[[T], int]) -> Page[T]:
    """Make a page of `limit` items from one more than that, if there are so many."""
    shown = tuple(items[:limit])
    more = len(items) > limit
    return Page(items=shown, next=str(number(shown[-1])) if more else None)


def place_before(cursor: str | None) -> tuple[int, str] | None:
    """Read a cursor of the catalogue, `<created_ms>:<session id>`; raises `Invalid`."""
    if cursor is None:
        return None
    written, _, session_id = cursor.partition(":") if isinstance(cursor, str) else ("", "", "")
    created = whole_number(written)
    if created is None:
        reason = f"{_shown(cursor)} is no cursor of a page of sessions"
        raise Invalid(field="cursor", reason=reason)
    return created, identifier(session_id, field="cursor")


def cursor_of(place: tuple[int, str]) -> str:
    """Write a place in the catalogue as a cursor."""
    return f"{place[0]}:{place[1]}"


def _shown(value: object) -> str:
    """What was given instead of a number; an integer may be too large even to be written."""
    if type(value) is int and abs(value) > MAX_COUNT:
        return "an integer out of range"
    return f"{value!r:.80}"
