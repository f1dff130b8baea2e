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
    info, config = await store.server()
    if not info:
        return ""
    found = fitness(info, config, settings=store.settings)
    if found.fatal:
        raise ServerUnfit([one.said for one in found.fatal])
    for one in found.warnings:
        log.warning("warning", code=one.code, text=one.said)
    return summary(info, config)


def summary(info: Mapping[str, str], config: Mapping[str, str]) -> str:
    """A server in a few words: `8.2.1 aof noeviction`."""
    version = info.get("valkey_version") or info.get("redis_version", "")
    aof = "aof" if info.get("aof_enabled") == "1" else "no aof"
    policy = config.get("maxmemory-policy") or info.get("maxmemory_policy", "")
    return " ".join(filter(None, (version, aof, policy)))
