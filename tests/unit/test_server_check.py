"""Which servers are refused and which are warned about."""

from __future__ import annotations

from typing import Any

import pytest

from changeover_shared._server.check import fitness
from changeover_shared._settings import Settings

GOOD: dict[str, Any] = {
    "redis_version": "7.4.1",
    "role": "master",
    "maxmemory": 0,
    "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
}


def test_a_server_that_keeps_what_it_accepts_has_no_findings() -> None:
    found = fitness(GOOD, {"appendfsync": "everysec"})
    assert (found.fatal, found.warnings) == ((), ())


@pytest.mark.parametrize("version", ["6.2.14", "5.0.7", "unstable", ""])
def test_an_old_or_unknown_redis_is_refused(version: str) -> None:
    (finding,) = fitness(GOOD | {"redis_version": version}, {}).fatal
    assert "use Redis 7.0 or later, or Valkey" in finding.said


@pytest.mark.parametrize("version", ["7.0.0", "7.0.15", "8.2.1", "10.0.0"])
def test_a_redis_from_7_0_on_is_accepted(version: str) -> None:
    assert fitness(GOOD | {"redis_version": version}, {}).fatal == ()


def test_any_valkey_is_accepted() -> None:
    info = GOOD | {"redis_version": "", "server_name": "valkey", "valkey_version": "9.1.2"}
    assert fitness(info, {}).fatal == ()


def test_a_server_that_evicts_is_refused() -> None:
    (finding,) = fitness(GOOD | {"maxmemory": 1, "maxmemory_policy": "allkeys-lru"}, {}).fatal
    assert "allkeys-lru" in finding.text
    assert finding.remedy == "CONFIG SET maxmemory-policy noeviction"


def test_a_policy_that_would_evict_one_day_is_warned_about_once() -> None:
    found = fitness(GOOD | {"maxmemory_policy": "volatile-ttl"}, {})
    assert found.fatal == ()
    (warning,) = found.warnings
    assert "volatile-ttl" in warning.text


def test_a_full_memory_without_eviction_is_fine() -> None:
    assert fitness(GOOD | {"maxmemory": 10**9}, {}).fatal == ()


def test_a_replica_is_refused() -> None:
    (finding,) = fitness(GOOD | {"role": "slave"}, {}).fatal
    assert "primary" in finding.said


def test_a_server_without_an_append_only_file_is_warned_about() -> None:
    (warning,) = fitness(GOOD | {"aof_enabled": 0}, {"appendfsync": "no"}).warnings
    assert "appendonly yes" in warning.said


def test_an_append_only_file_that_is_never_synced_is_warned_about() -> None:
    (warning,) = fitness(GOOD, {"appendfsync": "no"}).warnings
    assert "appendfsync everysec" in warning.said


@pytest.mark.parametrize(("skew_ms", "said"), [(7_000, "7 s ahead of"), (-7_000, "7 s behind")])
def test_a_wrong_clock_is_warned_about_with_its_side(skew_ms: int, said: str) -> None:
    (warning,) = fitness(GOOD, {}, skew_ms=skew_ms).warnings
    assert said in warning.text


def test_a_small_skew_is_nothing() -> None:
    assert fitness(GOOD, {}, skew_ms=-4_999).warnings == ()


def test_settings_are_read_under_their_names_in_config_too() -> None:
    facts = {name: value for name, value in GOOD.items() if not name.startswith("maxmemory")}
    config = {"maxmemory": "1", "maxmemory-policy": "allkeys-lfu"}
    assert len(fitness(facts, config).fatal) == 1


FSYNC = Settings(durability="fsync")
REPLICA = Settings(durability="replica", durability_replicas=2)


@pytest.mark.parametrize(
    ("facts", "config", "codes"),
    [
        ({"redis_version": "7.4.1"}, {}, []),
        ({"redis_version": "7.2.0"}, {}, []),
        ({"redis_version": "7.0.15"}, {}, ["redis_no_waitaof"]),
        ({"redis_version": "7.0.15"}, {"appendfsync": "always"}, []),
        ({"redis_version": "7.0.15", "valkey_version": "9.1.2"}, {}, []),
        ({"redis_version": "7.4.1", "aof_enabled": 0}, {}, ["redis_no_waitaof"]),
    ],
)
def test_fsync_is_refused_where_it_can_never_be_confirmed(
    facts: dict[str, Any], config: dict[str, str], codes: list[str]
) -> None:
    """Hole 28."""
    found = fitness(GOOD | facts, config, settings=FSYNC)
    assert [one.code for one in found.fatal] == codes


@pytest.mark.parametrize(("connected", "said"), [(0, "nobody"), (1, "2 replicas, 1 connected")])
def test_too_few_replicas_for_the_durability_are_warned_about(connected: int, said: str) -> None:
    (warning,) = fitness(GOOD | {"connected_slaves": connected}, {}, settings=REPLICA).warnings
    assert (warning.code, said in warning.text) == ("redis_no_replicas", True)


def test_enough_replicas_and_a_durability_that_needs_none_are_nothing() -> None:
    enough = GOOD | {"connected_slaves": 2}
    assert fitness(enough, {}, settings=REPLICA).warnings == ()
    assert fitness(GOOD | {"connected_slaves": 0}, {}, settings=Settings()).warnings == ()


def test_more_replicas_than_must_confirm_are_warned_about() -> None:
    """One that did not confirm may be the one that is promoted."""
    (warning,) = fitness(GOOD | {"connected_slaves": 3}, {}, settings=REPLICA).warnings
    assert warning.code == "redis_replicas_unconfirmed"
    assert warning.remedy == "set CHANGEOVER_DURABILITY_REPLICAS=3"
