"""Whether a server keeps the promises that a fleet is built on: facts in, findings out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OLDEST_REDIS = (7, 0)
SKEW_SHOWN_FROM_MS = 5_000


@dataclass(frozen=True, slots=True)
class Fitness:
    """What speaks against a server. Each text says what is wrong and what to do."""

    fatal: tuple[str, ...] = ()
    """With one of these a process must not start: accepted work could be lost or not served."""
    warnings: tuple[str, ...] = ()
    """With these it may start, and people should know."""


def fitness(info: Mapping[str, Any], config: Mapping[str, Any], *, skew_ms: int = 0) -> Fitness:
    """Judge a server by INFO and CONFIG GET, as redis-py reads them.

    Where CONFIG is not permitted, give an empty mapping: INFO alone answers what is fatal.
    `skew_ms` is this machine's clock minus the server's; only the server's ever counts.
    """
    facts = {name.replace("-", "_"): str(value) for name, value in {**config, **info}.items()}
    return Fitness(
        fatal=tuple(filter(None, (_too_old(facts), _evicts(facts), _replica(facts)))),
        warnings=tuple(
            filter(None, (_would_evict(facts), _forgets(facts), _no_fsync(facts), _skewed(skew_ms)))
        ),
    )


def _too_old(facts: Mapping[str, str]) -> str:
    # Every Valkey descends from Redis 7.2 and says so in redis_version.
    version = facts.get("redis_version", "")
    if _is_valkey(facts) or _numbers(version) >= OLDEST_REDIS:
        return ""
    return f"it is Redis {version or 'of an unknown version'}; use Redis 7.0 or later, or Valkey"


def _evicts(facts: Mapping[str, str]) -> str:
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy == "noeviction" or facts.get("maxmemory", "0") == "0":
        return ""
    return (
        f"its maxmemory-policy is {policy}: it would delete accepted work when memory runs out; "
        "set maxmemory-policy noeviction"
    )


def _replica(facts: Mapping[str, str]) -> str:
    if facts.get("role", "master") == "master":
        return ""
    return "it is a replica and takes no writes; use the URL of its primary"


def _would_evict(facts: Mapping[str, str]) -> str:
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy == "noeviction" or _evicts(facts):
        return ""
    return (
        f"its maxmemory-policy is {policy}; without maxmemory nothing is evicted yet; "
        "set maxmemory-policy noeviction"
    )


def _forgets(facts: Mapping[str, str]) -> str:
    if facts.get("aof_enabled", "0") != "0":
        return ""
    return (
        "its append-only file is off: a restart forgets what was accepted since the last snapshot; "
        "set appendonly yes"
    )


def _no_fsync(facts: Mapping[str, str]) -> str:
    if _forgets(facts) or facts.get("appendfsync", "everysec") != "no":
        return ""
    return (
        "its appendfsync is no: a crash of its machine forgets up to half a minute; "
        "set appendfsync everysec"
    )


def _skewed(skew_ms: int) -> str:
    if abs(skew_ms) < SKEW_SHOWN_FROM_MS:
        return ""
    side = "ahead of" if skew_ms > 0 else "behind"
    return (
        f"this machine's clock is {abs(skew_ms) / 1000:g} s {side} the server's; ids minted here "
        "carry its time, beyond 10 minutes they are refused; run a time service on both"
    )


def _is_valkey(facts: Mapping[str, str]) -> bool:
    return facts.get("server_name") == "valkey" or "valkey_version" in facts


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    return tuple(int(part) for part in parts[:2]) if all(p.isdigit() for p in parts[:2]) else ()
