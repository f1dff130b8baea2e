"""Places in what a session or a fleet holds: cursors, limits, and where the next page begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from changeover_shared._errors import Invalid
from changeover_shared._identifiers import identifier
from changeover_shared._results import Page

MAX_LIMIT = 1000

After = int | Literal["start", "now"]
"""The number of the last event that was seen, or where to begin."""

T = TypeVar("T")


def checked_after(after: After) -> After:
    """Return where to begin; raises `Invalid`."""
    number = isinstance(after, int) and not isinstance(after, bool) and after >= 0
    if not number and after not in ("start", "now"):
        raise Invalid(field="after", reason=f"{after!r:.80} is no event number, 'start' or 'now'")
    return after


def first_cursor(after: After, newest: int) -> int:
    """The number of the last event that a follower is not to see."""
    if isinstance(after, int):
        return after
    return 0 if after == "start" else newest


def checked_limit(limit: int) -> int:
    """Return how many items a page may have; raises `Invalid`."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise Invalid(field="limit", reason=f"{limit!r:.80} is not between 1 and {MAX_LIMIT}")
    return limit


def number_before(before: int | str | None) -> int | None:
    """Read the number that a page ends before; raises `Invalid`."""
    if before is None:
        return None
    written = str(before)
    if isinstance(before, bool) or not (written.isascii() and written.isdigit()):
        raise Invalid(field="before", reason=f"{before!r:.80} is no number of an item")
    return int(written)


def page_of(items: Sequence[T], limit: int, number: Callable[[T], int]) -> Page[T]:
    """Make a page of `limit` items from one more than that, if there are so many."""
    shown = tuple(items[:limit])
    more = len(items) > limit
    return Page(items=shown, next=str(number(shown[-1])) if more else None)


def place_before(cursor: str | None) -> tuple[int, str] | None:
    """Read a cursor of the catalogue, `<created_ms>:<session id>`; raises `Invalid`."""
    if cursor is None:
        return None
    created, colon, session_id = str(cursor).partition(":")
    if not colon or not (created.isascii() and created.isdigit()):
        raise Invalid(field="cursor", reason=f"{cursor!r:.80} is no cursor of a page of sessions")
    return int(created), identifier(session_id, field="cursor")


def cursor_of(place: tuple[int, str]) -> str:
    """Write a place in the catalogue as a cursor."""
    return f"{place[0]}:{place[1]}"
