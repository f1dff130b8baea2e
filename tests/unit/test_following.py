"""The judge of followers sees what is wrong, and only that."""

from __future__ import annotations

import pytest

from changeover_shared._events import Event, Gap, SessionClosed
from tests.support.following import Seen


def told(*seqs: int | Gap) -> Seen:
    seen = Seen()
    for one in seqs:
        event: Event = one if isinstance(one, Gap) else SessionClosed(seq=one)
        seen.note(event)
    return seen


@pytest.mark.parametrize(
    ("seqs", "found"),
    [
        ((1, 2, 3), []),
        ((1, 3), ["a follower never saw [2]"]),
        ((1, 2, 2), ["a follower saw [2] again"]),
        ((1, Gap(seq=7, first=2, last=7), 8), []),
        ((1, 2, 3, Gap(seq=1, first=2, last=3, reason="rewound"), 2, 3), []),
    ],
)
def test_a_number_that_is_missing_or_comes_again_is_found(
    seqs: tuple[int | Gap, ...], found: list[str]
) -> None:
    assert told(*seqs).found() == found


def test_each_gap_is_kept() -> None:
    assert told(1, Gap(seq=7, first=2, last=7), 8).told == ["2..7 trimmed"]
