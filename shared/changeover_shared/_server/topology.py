"""What an operator should know of a Cluster or of Sentinels: their answers in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from changeover_shared._server.check import Finding

SLOTS = 16384


@dataclass(frozen=True, slots=True)
class Node:
    """One line of CLUSTER NODES."""

    id: str
    address: str
    flags: frozenset[str]
    primary: str
    """The id of the one that it copies; '' for a primary."""
    slots: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether others cannot reach it."""
        return bool(self.flags & {"fail", "fail?", "noaddr", "handshake"})

    @property
    def serves(self) -> bool:
        """Whether it is a primary of some slots."""
        return "master" in self.flags and bool(self.slots)


def nodes_in(text: str) -> tuple[Node, ...]:
    """Read the answer of CLUSTER NODES."""
    found = []
    for line in text.splitlines():
        name, address, flags, primary, *rest = line.split()
        found.append(
            Node(
                id=name,
                address=address.partition("@")[0],
                flags=frozenset(flags.split(",")),
                primary="" if primary == "-" else primary,
                slots=tuple(rest[4:]),
            )
        )
    return tuple(found)


def cluster_findings(info: Mapping[str, str], nodes: Sequence[Node]) -> Iterator[Finding]:
    """A Cluster by CLUSTER INFO and CLUSTER NODES, as one of its nodes sees it."""
    primaries = [node for node in nodes if node.serves]
    replicas = [node for node in nodes if node.primary]
    assigned = int(info.get("cluster_slots_assigned", 0))
    state = info.get("cluster_state", "unknown")
    text = f"cluster {state} · {len(primaries)} primaries · {len(replicas)} replicas · "
    if state == "ok":
        yield Finding(level="ok", code="cluster", text=f"{text}{assigned} slots")
    else:
        yield Finding(
            level="fail",
            code="cluster_down",
            text=f"{text}{assigned} of {SLOTS} slots: what lies there is not served",
            remedy="start the nodes that are down, then redis-cli --cluster check",
        )
    if assigned < SLOTS:
        yield Finding(
            level="fail",
            code="slots_uncovered",
            text=f"{SLOTS - assigned} slots belong to nobody: their sessions cannot be reached",
            remedy="redis-cli --cluster fix " + (primaries[0].address if primaries else "<node>"),
        )
    for node in nodes:
        if node.failed:
            yield Finding(
                level="warn",
                code="node_down",
                text=f"other nodes do not reach {node.address} ({', '.join(sorted(node.flags))})",
                remedy=f"start it again, or redis-cli --cluster del-node <any node> {node.id}",
            )
    copied = {node.primary for node in replicas if not node.failed}
    for node in primaries:
        if node.id not in copied and not node.failed:
            yield Finding(
                level="warn",
                code="primary_without_replica",
                text=f"{node.address} has no replica: what it has is away while it is down",
                remedy=f"redis-cli --cluster add-node <new node> {node.address} --cluster-slave "
                f"--cluster-master-id {node.id}",
            )
    moving = sum(slot.startswith("[") for node in nodes for slot in node.slots)
    if moving:
        yield Finding(
            level="warn",
            code="slots_moving",
            text=f"{moving} slots are on their way: what lies there answers more slowly",
            remedy="let it end, or redis-cli --cluster fix <any node> if nothing moves them",
        )


@dataclass(frozen=True, slots=True)
class SentinelView:
    """What one Sentinel says; `error` when it says nothing."""

    address: str
    error: str = ""
    primary: Mapping[str, str] | None = None
    replicas: Sequence[Mapping[str, str]] = ()
    quorum_error: str = ""


def sentinel_findings(service: str, views: Sequence[SentinelView]) -> Iterator[Finding]:
    """A group of servers under Sentinels, as each of those that were asked sees it."""
    for view in views:
        if view.error:
            yield Finding(
                level="warn",
                code="sentinel_down",
                text=f"the Sentinel {view.address} does not answer: {view.error}",
                remedy="start it again",
            )
    seen = [view for view in views if view.primary is not None]
    if not seen:
        yield Finding(
            level="fail",
            code="no_sentinel",
            text=f"no Sentinel knows the service {service}: nobody would promote a replica",
            remedy="start the Sentinels, and check the service in --redis",
        )
        return
    yield _summary(service, seen, len(views))
    named = {f"{one.primary['ip']}:{one.primary['port']}" for one in seen if one.primary}
    if len(named) > 1:
        yield Finding(
            level="fail",
            code="sentinels_disagree",
            text=f"the Sentinels name {len(named)} primaries: {', '.join(sorted(named))}",
            remedy=f"SENTINEL RESET {service} on the one that is behind",
        )
    for view in seen:
        if view.quorum_error:
            yield Finding(
                level="fail",
                code="no_quorum",
                text=f"{view.address}: {view.quorum_error}",
                remedy="start the missing Sentinels",
            )
    yield from _replicas(seen[0])


def _summary(service: str, seen: Sequence[SentinelView], asked: int) -> Finding:
    primary = seen[0].primary or {}
    return Finding(
        level="ok",
        code="sentinel",
        text=f"sentinel {service} · primary {primary['ip']}:{primary['port']} · "
        f"{len(seen[0].replicas)} replicas · {len(seen)} of {asked} Sentinels answer · "
        f"quorum {primary['quorum']}",
    )


def _replicas(view: SentinelView) -> Iterator[Finding]:
    sound = [one for one in view.replicas if one["flags"] == "slave"]
    for one in view.replicas:
        if one not in sound:
            yield Finding(
                level="warn",
                code="replica_down",
                text=f"the replica {one['ip']}:{one['port']} is {one['flags']}",
                remedy="start it again, or SENTINEL RESET if it is gone for good",
            )
    if not sound:
        yield Finding(
            level="warn",
            code="primary_without_replica",
            text="there is no replica that could be promoted: nothing is served while the primary "
            "is down",
            remedy="start a server with --replicaof and the primary's address",
        )
