"""What an operator should know of a server beyond its fitness: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from changeover_shared._server.check import Facts, Finding, fitness
from changeover_shared._settings import Settings
from changeover_shared._sizes import show_size

CONFIG_NAMES: Final = (
    "appendfsync",
    "client-output-buffer-limit",
    "maxmemory",
    "maxmemory-policy",
    "min-replicas-to-write",
    "timeout",
)
"""The settings of a server that are judged; asked for with CONFIG GET."""

_ONLY_IN_CONFIG: Final = (
    "appendfsync",
    "client-output-buffer-limit",
    "min-replicas-to-write",
    "timeout",
)
NEAR: Final = 0.8
"""From this share of a limit on, people should know."""


def server_findings(
    info: Mapping[str, Any], config: Mapping[str, Any], settings: Settings, *, skew_ms: int
) -> tuple[Finding, ...]:
    """Everything about one server. Empty mappings are what could not be seen, never what is fine.

    `skew_ms` is this machine's clock minus the server's.
    """
    if not info:
        return (_unseen("INFO", "version, memory, persistence and replicas"),)
    facts = Facts(info, config)
    fit = fitness(info, config, settings=settings, skew_ms=skew_ms)
    return (
        _server(facts, skew_ms),
        *fit.fatal,
        *fit.warnings,
        *_memory(facts, settings),
        *_replicas(facts, settings),
        *_connections(facts),
        *_not_told(facts),
    )


def _server(facts: Facts, skew_ms: int) -> Finding:
    made = "valkey" if facts.is_valkey else "redis"
    version = facts.text("valkey_version") or facts.text("redis_version", "unknown")
    parts = (
        f"{made} {version} {facts.text('redis_mode') or facts.text('server_mode', 'standalone')}",
        f"aof {facts.text('appendfsync') or 'on' if facts.has_aof else 'off'}",
        f"{show_size(facts.number('used_memory'))} used",
        f"clock skew {skew_ms} ms",
    )
    return Finding(level="ok", code="server", text=" · ".join(parts))


def _memory(facts: Facts, settings: Settings) -> Iterator[Finding]:
    # As the server's own refusals count it.
    used = facts.number("used_memory") - facts.number("mem_not_counted_for_evict")
    limit = facts.number("maxmemory")
    if limit == 0:
        yield Finding(
            level="warn",
            code="redis_no_maxmemory",
            text="maxmemory is not set: Redis grows until the machine ends it, and messages are "
            "never refused in time",
            remedy="CONFIG SET maxmemory <bytes below what the machine has>",
        )
        return
    share, headroom = used / limit, settings.redis_headroom
    text = f"{show_size(used)} of maxmemory {show_size(limit)} are used, {share:.0%}: "
    remedy = "changeover purge --closed-for 30d, or CONFIG SET maxmemory <more>"
    if share > headroom:
        text += f"messages are refused from {headroom:.0%} on"
        yield Finding(level="fail", code="redis_full", text=text, remedy=remedy)
    elif share >= NEAR * headroom:
        text += f"at {headroom:.0%} messages are refused"
        yield Finding(level="warn", code="redis_full", text=text, remedy=remedy)


def _replicas(facts: Facts, settings: Settings) -> Iterator[Finding]:
    least = facts.number("min_replicas_to_write")
    connected = facts.number("min_slaves_good_slaves", facts.number("connected_slaves"))
    if least > connected:
        yield Finding(
            level="fail",
            code="redis_refuses_writes",
            text=f"min-replicas-to-write is {least} and {connected} are connected: Redis refuses "
            "every write (NOREPLICAS)",
            remedy="connect its replicas again",
        )
    elif settings.durability == "replica" and least == 0 and facts.seen("min_replicas_to_write"):
        yield Finding(
            level="warn",
            code="redis_writes_alone",
            text="min-replicas-to-write is 0: a primary that is cut off goes on accepting what a "
            "failover forgets",
            remedy=f"CONFIG SET min-replicas-to-write {settings.durability_replicas}",
        )


def _connections(facts: Facts) -> Iterator[Finding]:
    clients, most = facts.number("connected_clients"), facts.number("maxclients")
    if most and clients >= NEAR * most:
        yield Finding(
            level="warn",
            code="redis_maxclients",
            text=f"{clients} of maxclients {most} connections are open: soon nobody else connects",
            remedy=f"CONFIG SET maxclients {2 * most}",
        )
    idle = facts.number("timeout")
    if 0 < idle < timedelta(minutes=5).total_seconds():
        yield Finding(
            level="warn",
            code="redis_timeout",
            text=f"timeout is {idle}: Redis cuts connections that were quiet for so many seconds, "
            "clients connect anew all the time",
            remedy="CONFIG SET timeout 0",
        )
    # `normal <hard> <soft> <seconds> slave ...`: all zero is no limit.
    words = facts.text("client_output_buffer_limit").split()
    if words[:1] == ["normal"] and any(word != "0" for word in words[1:3]):
        yield Finding(
            level="warn",
            code="redis_output_buffer",
            text=f"client-output-buffer-limit is {' '.join(words[:4])}: Redis cuts a connection "
            "in the middle of a large answer, which is then asked for again",
            remedy='CONFIG SET client-output-buffer-limit "normal 0 0 0"',
        )


def _not_told(facts: Facts) -> Iterator[Finding]:
    names = [name for name in _ONLY_IN_CONFIG if not facts.seen(name.replace("-", "_"))]
    if names:
        yield _unseen("CONFIG GET", ", ".join(names))


def _unseen(command: str, what: str) -> Finding:
    return Finding(
        level="warn",
        code="not_seen",
        text=f"{command} is not permitted: {what} could not be seen",
        remedy="let this user run it (changeover acl operator), or look where the server is "
        "managed",
    )
