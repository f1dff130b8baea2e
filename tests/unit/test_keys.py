"""Keys: pinned, because a release that spells one otherwise sees an empty Redis."""

from __future__ import annotations

import pytest

from changeover_shared._settings import Settings
from changeover_shared._store.keys import (
    PARTITION_NAMES,
    SESSION_NAMES,
    Keys,
    Owner,
    PartitionKeys,
    queue_of,
    route_of,
)
from changeover_shared._store.requests import Request
from changeover_shared._store.scripts import script
from tests.support.every_request import every_request

AT = PartitionKeys("co", 17)


@pytest.mark.parametrize(
    ("key", "written"),
    [
        (AT.named("meta"), "{co:17}:meta"),
        (AT.ready("assistant@1"), "{co:17}:ready:assistant@1"),
        (AT.solo("assistant@1"), "{co:17}:ready:assistant@1!solo"),
        (AT.session("telegram:42", "head"), "{co:17}:s:telegram:42:head"),
        (AT.context("telegram:42", 3), "{co:17}:s:telegram:42:context:3"),
        (Keys("co", 64).bell("assistant@1"), "{co:bell}:assistant@1"),
        (Keys("co", 64).schedules.by_name, "{co:schedules}:by_name"),
        (Keys("co", 64).schedules.due, "{co:schedules}:due"),
        (Keys("co", 64).config, "co:config"),
        (Keys("co", 64).secret, "co:secret"),
        (Keys("co", 64).workers, "co:workers"),
        (Keys("co", 64).sweep, "co:sweep"),
        (Keys("co", 64).deputy, "{co:sweep}:deputy"),
        (Keys("co", 64).order("w@h:0a1b2c3d"), "co:order:w@h:0a1b2c3d"),
        (Keys("co", 64).call("w@h:0a1b2c3d"), "{co:bell}:!call:w@h:0a1b2c3d"),
        (Keys("co", 64).limits.permits("tenant", "acme"), "{co:limit}:tenant:acme"),
        (Keys("co", 64).limits.permits("queue", "a.b"), "{co:limit}:queue:a.b"),
        (Keys("co", 64).limits.model("main")["bucket"], "{co:limit}:model:main"),
        (Keys("co", 64).limits.model("main")["line"], "{co:limit}:model:main!line"),
        (Keys("co", 64).limits.model("a:b/c", "x")["kept"], "{co:limit}:model:a:b/c@x!kept"),
        (Keys("co", 64).limits.model("a@{b}!")["bucket"], "{co:limit}:model:a%40%7Bb%7D%21"),
    ],
)
def test_a_key_is_spelt_like_this(key: str, written: str) -> None:
    assert key == written


def test_no_two_things_have_one_key() -> None:
    """Also for a session whose name looks like a part of a key."""
    names = [*(AT.named(name) for name in PARTITION_NAMES), AT.ready("q@1"), AT.solo("q@1")]
    for session in ("a", "a:head", "s:a", "ready:q@1", "a:context:1"):
        names += [AT.session(session, name) for name in SESSION_NAMES]
        names += [AT.context(session, epoch) for epoch in (1, 2)]
    assert len(set(names)) == len(names)


def test_every_key_of_a_partition_has_its_tag() -> None:
    keys = [*(AT.named(name) for name in PARTITION_NAMES), AT.ready("q@1"), AT.solo("q@1"),
            *(AT.session("a", name) for name in SESSION_NAMES), AT.context("a", 1)]  # fmt: skip
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


FLEET = Keys("co", 64)
HOME = FLEET.of("telegram:42")


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        (FLEET.config, Owner("fleet", "config")),
        (FLEET.workers, Owner("fleet", "workers")),
        (FLEET.sweep, Owner("fleet", "sweep")),
        (FLEET.deputy, Owner("fleet", "deputy")),
        (FLEET.order("w@h:0a1b2c3d"), Owner("fleet", "order")),
        (FLEET.call("w@h:0a1b2c3d"), Owner("bell", "!call:w@h:0a1b2c3d")),
        (FLEET.bell("a@1"), Owner("bell", "a@1")),
        (FLEET.schedules.due, Owner("schedules", "due")),
        (FLEET.schedules.named("meta"), Owner("schedules", "meta")),
        (FLEET.limits.permits("tenant", "acme"), Owner("limit", "tenant:acme")),
        (FLEET.limits.model("main")["bucket"], Owner("limit", "model:main")),
        (
            FLEET.limits.model("ü {x}", "acme")["kept"],
            Owner("limit", "model:%C3%BC%20%7Bx%7D@acme!kept"),
        ),
        (FLEET.alarm, Owner("bell", "!alarm")),
        (FLEET.agents, Owner("fleet", "agents")),
        (AT.named("graves"), Owner("partition", "graves", 17)),
        (AT.ready("a.b@1"), Owner("ready", "a.b@1", 17)),
        (AT.solo("a.b@1"), Owner("ready", "a.b@1!solo", 17)),
        (
            HOME.session("telegram:42", "head"),
            Owner("session", "head", HOME.partition, "telegram:42"),
        ),
        (
            HOME.context("telegram:42", 3),
            Owner("session", "context", HOME.partition, "telegram:42", 3),
        ),
    ],
)
def test_an_owner_is_read_from_a_key(key: str, owner: Owner) -> None:
    assert FLEET.owner_of(key) == owner


def test_every_key_that_a_script_declares_has_an_owner() -> None:
    """So whatever has none is not ours: nothing will ever read or remove it."""
    requests = every_request(FLEET, Settings(), not_after_ms=0, sessions=2)
    for name, request in requests.items():
        for key in _declared(request):
            assert FLEET.owner_of(key) is not None, (name, key)


@pytest.mark.parametrize("session", ["a", "a:head", "s:a", "ready:q@1", "a:context:1", "a:context"])
def test_no_session_is_mistaken_for_another(session: str) -> None:
    at = FLEET.of(session)
    for name in SESSION_NAMES:
        expected = Owner("session", name, at.partition, session)
        assert FLEET.owner_of(at.session(session, name)) == expected
    found = FLEET.owner_of(at.context(session, 2))
    assert found == Owner("session", "context", at.partition, session, 2)


@pytest.mark.parametrize(
    "key",
    [
        "co:other",
        "co:config:x",
        "co:order:w",
        "{co:sweep}:other",
        "other:config",
        "{co:64}:meta",
        "{co:017}:meta",
        "{co:limit}:unheard",
        "{co:limit}:tenant:",
        "{co:limit}:model:",
        "{co:limit}:model:main!unheard",
        "{co:x}:meta",
        "{other:17}:meta",
        "{co:17}:unheard",
        "{co:schedules}:unheard",
        "{co:schedules}:head",
        "{co:17}:ready:q",
        "{co:17}:s:a:unheard",
        "{co:17}:s::head",
        "{co:17}meta",
        "co",
        "",
        PartitionKeys("co", (HOME.partition + 1) % 64).session("telegram:42", "head"),
    ],
)
def test_a_key_that_nothing_writes_has_no_owner(key: str) -> None:
    """The last one is a session's key in a partition that is not its own: nobody looks there."""
    assert FLEET.owner_of(key) is None


def _declared(request: Request) -> list[str]:
    meta = [request.partition.named("meta")] if "meta" in script(request.name).header.keys else []
    return [*meta, *request.keys.values(), *(key for one in request.each for key in one.values())]
