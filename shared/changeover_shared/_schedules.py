"""Schedules: when a message is due again, and what becomes of times that were missed. Pure."""

from __future__ import annotations

import hashlib
from datetime import UTC, tzinfo
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSimError

from changeover_shared._cron import next_time
from changeover_shared._errors import Invalid
from changeover_shared._items import Wire
from changeover_shared._messages import CheckedMessage
from changeover_shared._units import Duration, milliseconds

Missed = Literal["once", "skip"]
"""What becomes of times that nobody could serve: one run for all of them together, or none."""

LATE_MS: Final = 60_000
"""A time is missed once nobody has served it for a minute."""
SHORTEST: Final = "30s"
"""Runs closer together would fill a session's receipts within the deduplication window."""
LONGEST: Final = "366d"
MAX_CRON: Final = 256
CRON_FIELDS: Final = 5


class Rhythm(Wire):
    """The times of a schedule: by a cron expression in a time zone, or every so often."""

    cron: str = ""
    tz: str = "UTC"
    every_ms: int = 0
    anchor_ms: int = 0
    """What `every` is counted from."""


class Planned(Wire):
    """What a schedule does, without its name, its session and when it is due next."""

    rhythm: Rhythm
    missed: Missed = "once"
    message: CheckedMessage

    def digest(self, session_id: str) -> str:
        """16 hex digits over all that was asked for: a schedule that says the same is the same,
        whenever it was made."""
        asked = self.model_dump_json(exclude_defaults=True, exclude={"rhythm": {"anchor_ms": True}})
        return hashlib.sha256(f"{session_id} {asked}".encode()).hexdigest()[:16]


class Decision(NamedTuple):
    """What to do about a schedule whose time has come."""

    fires: bool
    next_ms: int
    """When it is due next; perhaps now."""


def rhythm(cron: str | None, every: Duration | None, tz: str, *, now_ms: int) -> Rhythm:
    """Read the times of a schedule; raises `Invalid`."""
    if (cron is None) == (every is None):
        raise Invalid(field="cron", reason="a schedule has either cron or every")
    if every is not None:
        if tz != "UTC":
            raise Invalid(field="tz", reason="only cron has a time zone")
        every_ms = milliseconds(every, field="every")
        if not milliseconds(SHORTEST) <= every_ms <= milliseconds(LONGEST):
            raise Invalid(field="every", reason=f"{every} is not from {SHORTEST} to {LONGEST}")
        return Rhythm(every_ms=every_ms, anchor_ms=now_ms)
    if not isinstance(cron, str) or len(cron) > MAX_CRON or len(cron.split()) != CRON_FIELDS:
        reason = f"{cron!r:.80} has not five fields: minute hour day month weekday"
        raise Invalid(field="cron", reason=reason)
    if _is_of_the_machine(tz):
        reason = f"{tz!r:.80} is not the same on every machine; write Europe/Berlin"
        raise Invalid(field="tz", reason=reason)
    _zone(tz)
    found = Rhythm(cron=" ".join(cron.split()), tz=tz)
    next_after(found, now_ms)
    return found


def next_after(times: Rhythm, after_ms: int) -> int:
    """The first time of a schedule after a moment; raises `Invalid` if there is none, or if this
    machine does not know its time zone."""
    if times.every_ms:
        passed = max(0, after_ms - times.anchor_ms) // times.every_ms
        return times.anchor_ms + (passed + 1) * times.every_ms
    try:
        found = next_time(times.cron, _zone(times.tz), after_ms)
    except CronSimError as error:
        raise Invalid(field="cron", reason=f"{times.cron!r}: {error}") from error
    if found is None:
        raise Invalid(field="cron", reason=f"{times.cron!r} never comes")
    return found


def decide(plan: Planned, due_ms: int, now_ms: int) -> Decision:
    """What to do about a schedule that was due at `due_ms`; raises `Invalid` as `next_after`."""
    if plan.missed == "skip" and now_ms - due_ms > LATE_MS:
        return Decision(False, next_after(plan.rhythm, max(due_ms, now_ms - LATE_MS)))
    return Decision(True, next_after(plan.rhythm, max(due_ms, now_ms)))


def submission_of(name: str, due_ms: int) -> str:
    """The id of what a schedule submits: the same whoever does it, and however often."""
    return f"schedule:{name}:{due_ms}"


def _is_of_the_machine(tz: object) -> bool:
    """Whether a machine's database may have a file of the name that is no zone of the database:
    the machine's own time, or clocks that count leap seconds."""
    return isinstance(tz, str) and tz.startswith(("localtime", "posixrules", "posix/", "right/"))


def _zone(tz: str) -> tzinfo:
    if tz == "UTC":
        return UTC
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        reason = f"{tz!r:.80} is no time zone; write Europe/Berlin"
        raise Invalid(field="tz", reason=reason) from error
