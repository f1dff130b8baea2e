"""Where keys live in a Cluster, from what its nodes say."""

from __future__ import annotations

import pytest

from changeover_shared._store.slots import key_of, slot_of, slots_in

ANSWER = [
    [5461, 16383, [b"b", 2, b"id-b"], [b"c", 3, b"id-c"]],
    [0, 5460, [b"", 1, b"id-a", [b"hostname", b"x"]]],
]
"""As CLUSTER SLOTS answers: ranges in any order, a node that does not know its own address."""


def test_each_slot_has_the_primary_that_the_nodes_name() -> None:
    found = slots_in(ANSWER, ("asked", 1))
    assert [found.primary_of(slot) for slot in (0, 5460, 5461, 16383)] == [
        ("asked", 1), ("asked", 1), ("b", 2), ("b", 2),
    ]  # fmt: skip
    assert found.primaries == (("asked", 1), ("b", 2))
    assert set(found.nodes) == {("asked", 1), ("b", 2), ("c", 3)}


def test_a_slot_that_nobody_serves_has_no_primary() -> None:
    found = slots_in([[10, 20, [b"a", 1, b"id"]]], ("asked", 1))
    assert [found.primary_of(slot) for slot in (9, 10, 20, 21)] == [None, ("a", 1), ("a", 1), None]
    assert slots_in([], ("asked", 1)).primary_of(0) is None


@pytest.mark.parametrize("host", [b"", b"?", None])
def test_a_node_without_a_name_is_the_one_that_was_asked(host: bytes | None) -> None:
    found = slots_in([[0, 1, [host, 7, b"id"]]], ("asked", 1))
    assert found.primary_of(0) == ("asked", 7)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("HGETALL", "{co:1}:meta"), "{co:1}:meta"),
        (("BZPOPMIN", "{co:bell}:a", "{co:bell}:b", "5"), "{co:bell}:a"),
        (("XREAD", "COUNT", 1, "BLOCK", 5, "STREAMS", "{co:1}:j", "0-0"), "{co:1}:j"),
        (("MEMORY", "USAGE", "{co:1}:meta"), "{co:1}:meta"),
        (("GET", b"co:config"), "co:config"),
        (("TIME",), None),
        (("INFO", "memory"), None),
        (("SCAN", 0, "MATCH", "co*"), None),
        (("CONFIG", "GET", "maxmemory"), None),
    ],
)
def test_a_command_goes_to_the_server_of_its_first_key(
    command: tuple[str | bytes | int, ...], key: str | None
) -> None:
    assert key_of(command) == key


def test_what_stands_in_braces_decides() -> None:
    """Source: the key hash tags of the Redis Cluster specification."""
    assert slot_of("{co:1}:meta") == slot_of("{co:1}:s:web:1:head") == slot_of("co:1")
