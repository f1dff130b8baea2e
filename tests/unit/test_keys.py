"""Keys: pinned, because a release that spells one otherwise sees an empty Redis."""

from __future__ import annotations

import pytest

from changeover_shared._store.keys import Keys, PartitionKeys, queue_of, route_of

AT = PartitionKeys("co", 17)
SESSION_KEYS = (
    "head", "work", "inbox", "receipts", "settled", "checkpoint", "transcript", "journal", "turns",
)  # fmt: skip
PARTITION_KEYS = (
    "meta", "leases", "owners", "stalls", "alerts", "timers", "vt", "sessions", "quarantine",
    "outbox",
)  # fmt: skip


@pytest.mark.parametrize(
    ("key", "written"),
    [
        (AT.named("meta"), "{co:17}:meta"),
        (AT.ready("assistant@1"), "{co:17}:ready:assistant@1"),
        (AT.solo("assistant@1"), "{co:17}:ready:assistant@1!solo"),
        (AT.session("telegram:42", "head"), "{co:17}:s:telegram:42:head"),
        (AT.context("telegram:42", 3), "{co:17}:s:telegram:42:context:3"),
        (Keys("co", 64).bell("assistant@1"), "{co:bell}:assistant@1"),
        (Keys("co", 64).config, "co:config"),
        (Keys("co", 64).workers, "co:workers"),
        (Keys("co", 64).sweep, "co:sweep"),
    ],
)
def test_a_key_is_spelt_like_this(key: str, written: str) -> None:
    assert key == written


def test_no_two_things_have_one_key() -> None:
    """Also for a session whose name looks like a part of a key."""
    names = [*(AT.named(name) for name in PARTITION_KEYS), AT.ready("q@1"), AT.solo("q@1")]
    for session in ("a", "a:head", "s:a", "ready:q@1", "a:context:1"):
        names += [AT.session(session, name) for name in SESSION_KEYS]
        names += [AT.context(session, epoch) for epoch in (1, 2)]
    assert len(set(names)) == len(names)


def test_every_key_of_a_partition_has_its_tag() -> None:
    keys = [*(AT.named(name) for name in PARTITION_KEYS), AT.ready("q@1"), AT.solo("q@1"),
            *(AT.session("a", name) for name in SESSION_KEYS), AT.context("a", 1)]  # fmt: skip
    assert all(key.startswith("{co:17}:") for key in keys)


def test_all_bells_lie_in_one_slot() -> None:
    """Hole 41: one blocking read listens to several."""
    keys = Keys("co", 64)
    assert {keys.bell(f"q{i}@1").split("}")[0] for i in range(5)} == {"{co:bell"}


def test_a_session_has_one_partition() -> None:
    keys = Keys("co", 64)
    assert keys.of("telegram:42") is keys.of("telegram:42")
    assert len(keys.all) == 64
    assert [at.partition for at in keys.all] == list(range(64))
    assert {keys.of(f"s{i}").partition for i in range(2000)} == set(range(64))


def test_a_route_is_a_queue_with_a_format() -> None:
    """Hole 39."""
    assert route_of("assistant") == "assistant@1"
    assert queue_of("assistant@1") == "assistant"
