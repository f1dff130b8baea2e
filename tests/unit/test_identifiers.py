"""Identifiers: what may become part of a key, and how ids are minted."""

from __future__ import annotations

import time

import pytest

from changeover_shared import _identifiers as ids
from changeover_shared._errors import Invalid


@pytest.mark.parametrize(
    "value", ["a", "telegram:42", "a" * 256, "A-Z_0.9~!$&'()*+,;=@<>[]^`", "-", "user@host:1"]
)
def test_printable_ascii_names_a_session_or_a_submission(value: str) -> None:
    assert ids.identifier(value, field="session_id") == value


@pytest.mark.parametrize(
    "value",
    ["", "a" * 257, "a b", "a\n", "a\t", "é", "a{b", "a}b", "a|b", "a/b", "a?b", "a#b", "a%b",
     "a\\b", 'a"b', "a\x00", 7, None, b"a"],
)  # fmt: skip
def test_what_could_break_a_key_a_path_or_a_record_is_invalid(value: object) -> None:
    with pytest.raises(Invalid, match=r"session_id: .*; nothing was sent") as refused:
        ids.identifier(value, field="session_id")  # type: ignore[arg-type]
    assert refused.value.field == "session_id"


def test_a_long_wrong_value_is_not_repeated_whole() -> None:
    with pytest.raises(Invalid) as refused:
        ids.identifier("x y" * 10_000, field="f")
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("value", ["assistant", "a.b_c-d", "0", "x" * 64])
def test_a_name_is_short_and_plain(value: str) -> None:
    assert ids.name(value, field="queue") == value
    assert ids.worker_name(value) == value


@pytest.mark.parametrize("value", ["", "x" * 65, "a b", "a@b", "a:b", "a!solo", "a|b", "é", 1])
def test_what_is_no_name_is_invalid(value: object) -> None:
    with pytest.raises(Invalid, match=r"^queue: "):
        ids.name(value, field="queue")  # type: ignore[arg-type]


def test_only_a_workers_name_may_hold_an_at_sign() -> None:
    assert ids.worker_name("w1@host") == "w1@host"
    with pytest.raises(Invalid, match="worker: "):
        ids.worker_name("w1:host")


def test_minted_ids_are_uuid7s_that_sort_by_time() -> None:
    minted = [ids.new_submission_id() for _ in range(1000)]
    assert minted == sorted(minted)
    assert len(set(minted)) == len(minted)
    times = [ids.id_time_ms(one) for one in minted]
    assert all(abs((one or 0) - time.time() * 1000) < 60_000 for one in times)
    assert all(ids.identifier(one, field="id") for one in minted)


def test_the_time_inside_a_uuid7_is_read_to_the_millisecond() -> None:
    assert ids.id_time_ms("0190a1b2-c3d4-7abc-8def-0123456789ab") == 0x0190A1B2C3D4


@pytest.mark.parametrize(
    "value",
    [
        "telegram:42",
        "0190a1b2-c3d4-4abc-8def-0123456789ab",
        "0190a1b2-c3d4-7abc-cdef-0123456789ab",
        "0190A1B2-C3D4-7ABC-8DEF-0123456789AB",
        "0190a1b2-c3d4-7abc-8def-0123456789abc",
        "x0190a1b2-c3d4-7abc-8def-0123456789ab",
    ],
)
def test_other_ids_have_no_time(value: str) -> None:
    assert ids.id_time_ms(value) is None


def test_nonces_and_incarnations_are_never_the_same_twice() -> None:
    assert len({ids.new_nonce() for _ in range(1000)}) == 1000
    assert len(ids.new_nonce()) >= 22
    boots = {ids.new_incarnation("w1@host") for _ in range(100)}
    assert len(boots) == 100
    assert {ids.worker_of(boot) for boot in boots} == {"w1@host"}


def test_neither_may_hold_what_separates_a_lease_string() -> None:
    assert not any("|" in ids.new_nonce() + ids.new_incarnation("w") for _ in range(1000))


@pytest.mark.parametrize(
    ("session", "partitions", "partition"),
    [("telegram:42", 64, 53), ("telegram:42", 4, 1), ("a", 64, 3), ("web:1", 1, 0)],
)
def test_the_partition_of_a_session_never_changes(
    session: str, partitions: int, partition: int
) -> None:
    """Pinned: another formula would look for every session elsewhere."""
    assert ids.partition_of(session, partitions) == partition
