"""How many sessions a worker lets go, and to whom."""

from __future__ import annotations

from typing import Any

import pytest

from changeover_shared._results import WorkerInfo
from changeover_worker._process.balance import surplus, takers

NOW = 1_000_000


@pytest.mark.parametrize(
    ("mine", "others", "expected"),
    [
        (24, [0], 12),
        (24, [0, 0, 0], 18),
        (24, [12], 0),
        (25, [11], 7),
        (2, [0], 1),
        (1, [0], 0),
        (0, [0], 0),
        (24, [], 0),
        (24, [0, 90], 0),
        (3, [1], 0),
    ],
)
def test_what_is_beyond_an_equal_share_goes_once_somebody_has_less_than_half(
    mine: int, others: list[int], expected: int
) -> None:
    assert surplus(mine, others) == expected


@pytest.mark.parametrize("mine", range(60))
@pytest.mark.parametrize("other", range(0, 60, 7))
def test_what_has_moved_does_not_move_back(mine: int, other: int) -> None:
    moved = surplus(mine, [other])
    assert surplus(other + moved, [mine - moved]) == 0 or other > mine


def worker(name: str, **given: Any) -> WorkerInfo:
    values: dict[str, Any] = {
        "worker": name, "incarnation": f"{name}:0", "queues": ("a",), "slots": 10, "sessions": 3,
        "renewed_at_ms": NOW,
    }  # fmt: skip
    return WorkerInfo(**{**values, **given})


def test_takers_live_serve_the_queue_and_have_room() -> None:
    workers = [
        worker("me", sessions=9),
        worker("full", sessions=10),
        worker("draining", state="draining"),
        worker("silent", renewed_at_ms=NOW - 21_000),
        worker("elsewhere", queues=("b",)),
        worker("good", sessions=2),
    ]
    assert takers(workers, "a", but="me:0", now_ms=NOW, silent_ms=20_000) == [2]
