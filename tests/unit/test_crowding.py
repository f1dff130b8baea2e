"""When a bound on what waits is reached."""

from __future__ import annotations

import pytest

from changeover_shared._store import decode
from changeover_shared._store.records import EVERYBODY, Crowd
from changeover_worker._process.crowding import is_crowded


@pytest.mark.parametrize(
    ("depth", "limit", "before", "crowded"),
    [
        (0, 1, False, False),
        (1, 1, False, True),
        (0, 1, True, False),
        (99, 100, False, False),
        (100, 100, False, True),
        (100, 100, True, True),
        (96, 100, True, True),
        (95, 100, True, False),
        (10**9, None, True, False),
    ],
)
def test_a_bound_is_reached_at_its_number_and_until_clearly_fewer_wait(
    depth: int, limit: int | None, before: bool, crowded: bool
) -> None:
    assert is_crowded(depth, limit, before=before) == crowded


def test_what_a_partition_was_told_is_read_as_it_is_written() -> None:
    told = b"1700000000000|acme-2=12/10|*=99/90|"
    assert decode.full(told) == (1700000000000, (Crowd("acme-2", 12, 10), Crowd(EVERYBODY, 99, 90)))
    assert decode.full(b"") == (0, ())
    assert decode.sums([b"!", b"3", b"*", b"2", b"acme", b"1"]) == {EVERYBODY: 2, "acme": 1}
