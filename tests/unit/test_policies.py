"""Policies as people write them, and as the scripts take them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from changeover_shared._errors import Invalid
from changeover_shared._policies import (
    AnyPolicy,
    Debounce,
    Wish,
    defaults_of,
    read_policy,
    wish_of,
    write_policy,
)

WRITTEN: list[tuple[str, AnyPolicy, Wish]] = [
    ("enqueue", "enqueue", Wish("enqueue")),
    ("steer", "steer", Wish("steer")),
    ("join", "join", Wish("join", "join")),
    ("latest", "latest", Wish("latest", "latest")),
    ("interrupt", "interrupt", Wish("interrupt")),
    ("rollback", "rollback", Wish("rollback")),
    ("reject", "reject", Wish("reject")),
    (
        "debounce:1500ms,8000ms",
        Debounce("1500ms", "8000ms"),
        Wish("debounce", "debounce", 1500, 8000),
    ),
]


@pytest.mark.parametrize(("text", "policy", "wish"), WRITTEN)
def test_every_policy_is_read_written_and_wished_for(
    text: str, policy: AnyPolicy, wish: Wish
) -> None:
    assert (read_policy(text), write_policy(policy), wish_of(policy)) == (policy, text, wish)


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("debounce:1.5s", Wish("debounce", "debounce", 1500, 10_000)),
        ("debounce:1.5s,8s", Wish("debounce", "debounce", 1500, 8000)),
    ],
)
def test_spans_are_written_as_people_like(text: str, wish: Wish) -> None:
    assert wish_of(read_policy(text)) == wish


@pytest.mark.parametrize(
    "text", ["", "queue", "Enqueue", "debounce", "debounce:", "debounce:soon", "steer:1s"]
)
def test_what_is_no_policy_is_said_with_what_would_be_one(text: str) -> None:
    with pytest.raises(Invalid, match=r"debounce:QUIET|is no duration"):
        read_policy(text)


@pytest.mark.parametrize(
    ("quiet", "longest"),
    [("0s", "10s"), ("11s", "10s"), ("1s", "2d"), (timedelta(seconds=-1), "1s"), ("1s", "x")],
)
def test_a_debounce_that_could_not_be_kept_is_refused(quiet: Any, longest: str) -> None:
    with pytest.raises(Invalid):
        Debounce(quiet, longest)


@pytest.mark.parametrize("policy", ["later", None, 1, ["join"]])
def test_what_is_no_policy_in_python_is_refused(policy: Any) -> None:
    with pytest.raises(Invalid, match="none of enqueue, steer"):
        wish_of(policy)


def test_defaults_leave_out_what_wants_nothing_particular_or_cannot_be_read() -> None:
    entries = {"a": "enqueue", "b": "steer", "c": "from_a_newer_release", "d": "join"}
    assert defaults_of(entries) == {"b": Wish("steer"), "d": Wish("join", "join")}
