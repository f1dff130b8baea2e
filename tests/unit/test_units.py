"""Durations and sizes as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from changeover_shared._errors import Invalid
from changeover_shared._units import duration, milliseconds, show_duration, size


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("500ms", 0.5), ("30s", 30), ("5m", 300), ("2h", 7200), ("7d", 604_800), ("1.5s", 1.5),
     (" 30 s ", 30), ("0s", 0), (timedelta(seconds=3), 3), (timedelta(0), 0)],
)  # fmt: skip
def test_a_duration_is_read(written: str | timedelta, seconds: float) -> None:
    assert duration(written) == timedelta(seconds=seconds)
    assert milliseconds(written) == round(seconds * 1000)


@pytest.mark.parametrize(
    "written", ["", "30", "s", "-1s", "30 sec", "1h30m", "1e3s", ".5s", "30S", None, 30, 1.5]
)
def test_what_is_no_duration_is_invalid(written: object) -> None:
    with pytest.raises(Invalid, match=r"ttl: .* is no duration; write 500ms, 30s"):
        duration(written, field="ttl")  # type: ignore[arg-type]


def test_a_negative_span_is_invalid() -> None:
    with pytest.raises(Invalid, match=r"ttl: .* is negative"):
        duration(timedelta(seconds=-1), field="ttl")


def test_milliseconds_are_whole() -> None:
    assert milliseconds(timedelta(microseconds=1499)) == 1
    assert milliseconds(timedelta(microseconds=1501)) == 2


@pytest.mark.parametrize(
    ("written", "count"),
    [(0, 0), (4096, 4096), ("4096", 4096), ("12B", 12), ("64KiB", 65_536), ("8 MiB", 8_388_608),
     ("1GiB", 1_073_741_824)],
)  # fmt: skip
def test_a_size_is_read(written: int | str, count: int) -> None:
    assert size(written) == count


@pytest.mark.parametrize("written", ["", "-1", -1, "1.5MiB", "1MB", "1kb", True, None, 1.0])
def test_what_is_no_size_is_invalid(written: object) -> None:
    with pytest.raises(Invalid, match=r"max: .* is no size; write 4096"):
        size(written, field="max")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0.0 s"), (0.2, "0.2 s"), (9.94, "9.9 s"), (41, "41 s"), (119, "119 s"), (180, "3 m"),
     (7_199, "120 m"), (7_200, "2 h"), (172_799, "48 h"), (432_000, "5 d")],
)  # fmt: skip
def test_a_duration_is_shown_as_people_say_it(seconds: float, shown: str) -> None:
    assert show_duration(timedelta(seconds=seconds)) == shown


def test_a_duration_beyond_all_bounds_is_invalid() -> None:
    with pytest.raises(Invalid, match="longer than time can be"):
        duration("99999999999999d")
