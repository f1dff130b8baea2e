"""The server as a worker meets it: judged before anything is claimed."""

from __future__ import annotations

from collections.abc import Mapping

from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import ServerUnfit
from changeover_shared._server.check import fitness
from changeover_shared._store.lease_store import LeaseStore


async def checked_server(store: LeaseStore, log: FilteringBoundLogger) -> str:
    """Say what the server is, and warn of what speaks against it; raises `ServerUnfit`."""
    for other in store.differences:
        log.warning("settings_differ", name=other.name, mine=other.mine, fleet=other.fleet)
    servers = await store.servers()
    fatal: list[str] = []
    for one in servers:
        lead = f"{one.name}: " if len(servers) > 1 else ""
        found = fitness(one.info, one.config, settings=store.settings, skew_ms=one.skew_ms)
        fatal += [lead + finding.said for finding in found.fatal]
        for finding in found.warnings:
            log.warning("warning", code=finding.code, text=lead + finding.said)
    if fatal:
        raise ServerUnfit(fatal)
    return summary(servers[0].info, servers[0].config) if servers else ""


def summary(info: Mapping[str, str], config: Mapping[str, str]) -> str:
    """A server in a few words: `8.2.1 aof noeviction`."""
    version = info.get("valkey_version") or info.get("redis_version", "")
    aof = "aof" if info.get("aof_enabled") == "1" else "no aof"
    policy = config.get("maxmemory-policy") or info.get("maxmemory_policy", "")
    return " ".join(filter(None, (version, aof, policy)))
