"""What an operator is told of a server."""

from __future__ import annotations

from typing import Any

import pytest

from changeover_shared._server.check import Finding
from changeover_shared._server.diagnosis import server_findings
from changeover_shared._settings import Settings

INFO: dict[str, Any] = {
    "redis_version": "7.4.1",
    "redis_mode": "standalone",
    "role": "master",
    "aof_enabled": 1,
    "used_memory": 100,
    "maxmemory": 1000,
    "maxmemory_policy": "noeviction",
    "connected_slaves": 1,
    "connected_clients": 5,
    "maxclients": 10_000,
}
CONFIG = {
    "appendfsync": "everysec",
    "timeout": "0",
    "min-replicas-to-write": "1",
    "client-output-buffer-limit": "normal 0 0 0 slave 268435456 67108864 60 pubsub 1 2 3",
}


def found(
    info: dict[str, Any] | None = None,
    config: dict[str, str] | None = None,
    *,
    settings: Settings | None = None,
) -> dict[str, Finding]:
    """Everything that is not ok, by code."""
    told = server_findings(
        INFO | (info or {}), CONFIG | (config or {}), settings or Settings(), skew_ms=0
    )
    return {one.code: one for one in told if one.level != "ok"}


def test_a_good_server_is_one_line() -> None:
    (line,) = server_findings(INFO, CONFIG, Settings(), skew_ms=3)
    assert line.level == "ok"
    assert line.text == ("redis 7.4.1 standalone · aof everysec · 100 B used · clock skew 3 ms")
    assert line.remedy is None


@pytest.mark.parametrize(
    ("info", "config", "code", "level", "remedy"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, {}, "redis_evicts", "fail",
         "CONFIG SET maxmemory-policy noeviction"),
        ({"aof_enabled": 0}, {}, "redis_no_aof", "warn", "CONFIG SET appendonly yes"),
        ({"maxmemory": 0}, {}, "redis_no_maxmemory", "warn", "CONFIG SET maxmemory"),
        ({"used_memory": 719}, {}, None, "", ""),
        ({"used_memory": 721}, {}, "redis_full", "warn", "changeover purge"),
        ({"used_memory": 901}, {}, "redis_full", "fail", "changeover purge"),
        ({"role": "slave"}, {}, "redis_replica", "fail", "use the URL of its primary"),
        ({}, {"min-replicas-to-write": "2"}, "redis_refuses_writes", "fail", "connect"),
        ({"connected_clients": 8000}, {}, "redis_maxclients", "warn",
         "CONFIG SET maxclients 20000"),
        ({}, {"timeout": "30"}, "redis_timeout", "warn", "CONFIG SET timeout 0"),
        ({}, {"timeout": "3600"}, None, "", ""),
        ({}, {"client-output-buffer-limit": "normal 1024 0 0 slave 0 0 0"},
         "redis_output_buffer", "warn", "CONFIG SET client-output-buffer-limit"),
    ],
)  # fmt: skip
def test_each_fact_has_a_finding_with_a_remedy(
    info: dict[str, Any], config: dict[str, str], code: str | None, level: str, remedy: str
) -> None:
    told = found(info, config)
    if code is None:
        assert told == {}
        return
    assert list(told) == [code]
    assert told[code].level == level
    assert remedy in (told[code].remedy or "")


def test_a_primary_that_may_be_alone_is_said_to_who_waits_for_replicas() -> None:
    settings = Settings(durability="replica")
    told = found(config={"min-replicas-to-write": "0"}, settings=settings)
    assert told["redis_writes_alone"].remedy == "CONFIG SET min-replicas-to-write 1"
    assert found(config={"min-replicas-to-write": "0"}) == {}


def test_what_config_does_not_tell_could_not_be_seen() -> None:
    told = server_findings(INFO, {}, Settings(), skew_ms=0)
    (unseen,) = [one for one in told if one.level != "ok"]
    assert unseen.code == "not_seen"
    assert "appendfsync, client-output-buffer-limit, min-replicas-to-write" in unseen.text


def test_without_info_nothing_is_said_to_be_fine() -> None:
    (unseen,) = server_findings({}, CONFIG, Settings(), skew_ms=0)
    assert (unseen.level, unseen.code) == ("warn", "not_seen")
