"""When memory is short, and when a partition has to be told."""

from __future__ import annotations

import pytest

from changeover_shared._sizes import show_size
from changeover_shared._store import decode
from changeover_shared._store.records import Memory, Peeked
from changeover_worker._process.headroom import SPAN_MS, is_short, must_say


@pytest.mark.parametrize(
    ("used", "before", "short"),
    [
        (0, False, False),
        (900, False, False),
        (901, False, True),
        (1100, False, True),
        (901, True, True),
        (900, True, True),
        (856, True, True),
        (855, True, False),
        (856, False, False),
    ],
)
def test_memory_is_short_above_the_headroom_and_until_it_is_clearly_below(
    used: int, before: bool, short: bool
) -> None:
    assert is_short(Memory(used, 1000), 0.9, before=before) == short


@pytest.mark.parametrize("before", [True, False])
def test_a_server_without_a_limit_is_never_short(before: bool) -> None:
    assert not is_short(Memory(10**12, 0), 0.9, before=before)


@pytest.mark.parametrize(
    ("wanted", "left_ms", "say"),
    [
        (False, 0, False),
        (False, 1, True),
        (True, 0, True),
        (True, SPAN_MS // 2 - 1, True),
        (True, SPAN_MS // 2, False),
        (True, SPAN_MS, False),
    ],
)
def test_a_partition_is_told_what_it_does_not_say_or_not_for_long(
    wanted: bool, left_ms: int, say: bool
) -> None:
    peeked = Peeked(expired=(), due=(), ready=(), counts=(), pressure_ms=left_ms)
    assert must_say(wanted, peeked) == say


def test_memory_is_counted_as_the_server_counts_it_when_it_refuses() -> None:
    info = b"# Memory\r\nused_memory:1000\r\nmaxmemory:5000\r\nmem_not_counted_for_evict:100\r\n"
    assert decode.memory(info) == Memory(used=900, limit=5000)
    assert decode.memory(b"used_memory:7\r\n") == Memory(used=7, limit=0)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (12_800, "12.5 KiB"),
        (972 * 1024**2, "972 MiB"),
        (3 * 1024**3 // 2, "1.5 GiB"),
        (5000 * 1024**3, "5000 GiB"),
    ],
)
def test_sizes_are_said_in_the_largest_fitting_unit(size: int, shown: str) -> None:
    assert show_size(size) == shown
