"""Whether a model step may end before its session counts as one without progress."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from changeover_worker._session.standstill import Standstill

LIMIT = timedelta(minutes=15)
STEP_MS = 11 * 60_000


@pytest.mark.parametrize(
    ("limit", "stood_s", "span_ms", "leaves"),
    [
        (LIMIT, 0, STEP_MS, True),
        (LIMIT, 230, STEP_MS, True),
        (LIMIT, 236, STEP_MS, False),
        (LIMIT, 3600, STEP_MS, False),
        (LIMIT, 3600, 16 * 60_000, True),
        (None, 3600, STEP_MS, True),
    ],
)
def test_there_is_time_for_what_ends_within_the_limit(
    limit: timedelta | None, stood_s: int, span_ms: int, leaves: bool
) -> None:
    stands = Standstill(limit, time.monotonic() - stood_s)
    assert stands.leaves_time_for(span_ms, behind_ms=5_000) is leaves


def test_progress_begins_the_time_anew() -> None:
    stands = Standstill(LIMIT, time.monotonic() - 3600)
    stands.end()
    assert stands.leaves_time_for(STEP_MS, behind_ms=5_000)
