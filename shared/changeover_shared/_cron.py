"""When a cron expression comes next on the clock of a time zone. Pure.

cronsim reads the expression and counts on a clock that never changes; which moments its times are
in a zone, whose clock does, is decided here:

* Times of the day (no field of minute or hour begins with `*`): one that the clock leaps over runs
  at the first minute after the leap, and one that comes twice runs the first time. Those that fall
  on the same minute are one run.
* Everything else follows the clock on the wall: what it leaps over does not run, what it shows
  twice runs twice, so that `*/30 * * * *` runs every half hour whatever the clock does.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from cronsim import CronSim

_MINUTE: Final = timedelta(minutes=1)
_AHEAD_S: Final = 26 * 3600
"""A clock that is put back is put back by no more than a day."""


def next_time(cron: str, zone: tzinfo, after_ms: int) -> int | None:
    """The first moment of an expression after another one; None if there is none within decades.

    Raises `CronSimError` for what is no expression.
    """
    minute, hour, *_ = cron.split()
    of_the_day = not (minute.startswith("*") or hour.startswith("*"))
    second_time: int | None = None
    for wall in CronSim(cron, _start(zone, after_ms, of_the_day=of_the_day)):
        shown = wall
        while not _is_shown(shown, zone) and of_the_day:
            shown += _MINUTE
        if not _is_shown(shown, zone):
            continue
        first_ms, again_ms = _moment(shown, zone, fold=0), _moment(shown, zone, fold=1)
        if first_ms > after_ms:
            return first_ms if second_time is None else min(first_ms, second_time)
        if again_ms > after_ms and not of_the_day and second_time is None:
            second_time = again_ms
    return second_time


def _start(zone: tzinfo, after_ms: int, *, of_the_day: bool) -> datetime:
    """What the clock shows at a moment. Where it will soon be put back, what it then shows again
    is earlier on it."""
    after_s = after_ms // 1000
    now, soon = (
        datetime.fromtimestamp(after_s, zone),
        datetime.fromtimestamp(after_s + _AHEAD_S, zone),
    )
    wall = now.replace(tzinfo=None, fold=0)
    if of_the_day:
        return wall
    back = (now.utcoffset() or timedelta()) - (soon.utcoffset() or timedelta())
    return wall - max(back, timedelta())


def _is_shown(wall: datetime, zone: tzinfo) -> bool:
    """Whether the clock ever shows this."""
    return wall.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None) == wall


def _moment(wall: datetime, zone: tzinfo, *, fold: int) -> int:
    return round(wall.replace(tzinfo=zone, fold=fold).timestamp()) * 1000
