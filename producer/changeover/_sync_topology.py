# Written by tools/generate_sync.py from _topology.py: change that file instead.
"""Ask a Cluster or the Sentinels of a target how they are. Reads only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from redis.exceptions import RedisError, ResponseError

from changeover_shared._errors import ServerUnfit
from changeover_shared._server.check import Finding
from changeover_shared._server.connect import SENTINEL_TIMEOUT_S, sync_client
from changeover_shared._server.topology import (
    SentinelView,
    cluster_findings,
    nodes_in,
    sentinel_findings,
)
from changeover_shared._server.url import Target
from changeover_shared._store import decode
from changeover_shared._store.replication import facts_in
from changeover_shared._store.sync_executor import SyncExecutor


def look_around(executor: SyncExecutor, target: Target) -> list[Finding]:
    """What stands around the servers; nothing for a server alone."""
    if target.kind == "cluster":
        return _cluster(executor)
    if target.kind == "sentinel":
        views = [_sentinel(target, *address) for address in target.nodes]
        return [*sentinel_findings(target.service, views)]
    return []


def _cluster(executor: SyncExecutor) -> list[Finding]:
    try:
        info = executor.command("CLUSTER", "INFO")
        nodes = executor.command("CLUSTER", "NODES")
    except (ServerUnfit, ResponseError):
        return [
            Finding(
                level="warn",
                code="not_seen",
                text="CLUSTER INFO is not permitted: slots and replicas could not be seen",
                remedy="let this user run it (changeover acl operator)",
            )
        ]
    return [*cluster_findings(facts_in(info), nodes_in(nodes.decode()))]


def _sentinel(target: Target, host: str, port: int) -> SentinelView:
    where = f"{host}:{port}"
    its = replace(
        target.at(host, port),
        username=target.sentinel_username,
        password=target.sentinel_password,
        db=0,
    )
    client = sync_client(its, socket_timeout=SENTINEL_TIMEOUT_S)
    client.response_callbacks.clear()
    try:
        primary = _pairs(_ask(client, "MASTER", target.service))
        found = _ask(client, "REPLICAS", target.service)
        try:
            _ask(client, "CKQUORUM", target.service)
        except ResponseError as error:
            return SentinelView(where, "", primary, [_pairs(one) for one in found], str(error))
    except (RedisError, OSError) as error:
        return SentinelView(where, error=str(error) or type(error).__name__)
    finally:
        client.close()
    return SentinelView(where, "", primary, [_pairs(one) for one in found])


def _ask(client: Any, *args: str) -> Any:
    return client.execute_command("SENTINEL", *args)


def _pairs(flat: Any) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in decode.pairs(flat)}
