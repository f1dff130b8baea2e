"""A Cluster of local processes: formed, broken and resharded by tests over redis-py alone."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from redis.crc import key_slot

from tests.support.nodes import GONE, Node, program_of
from tests.support.processes import wait_until
from tests.support.servers import free_port
from tests.support.tls import Certificates

SLOTS = 16384
MASTERS = 3
FORMING_TIMEOUT_MS = 500
"""While it is formed nobody fails, and a short time-out makes it agree sooner."""
KEYS_AT_ONCE = 100


class ClusterNode(Node):
    """One node, by the id that the others know it by."""

    def __init__(
        self, command: Sequence[str], directory: Path, certificates: Certificates | None
    ) -> None:
        super().__init__(command, directory)
        self.certificates = certificates
        self.tls_port = 0
        self.bus_port = 0
        self.id = ""

    @property
    def known_port(self) -> int:
        """What the other nodes, and clients, know it by; the test has its plain port as well."""
        return self.tls_port or self.port

    def view(self) -> dict[str, Seen]:
        """What this node believes of every node, by id; nothing when it does not answer."""
        try:
            lines = self.client.execute_command("CLUSTER NODES")  # type: ignore[no-untyped-call]
        except GONE:
            return {}
        return {one["node_id"]: Seen.of(one) for one in lines.values()}

    def start_apart(self) -> None:
        """Start a killed node where clients find it and no other node does, nor it any of them."""
        file = self.directory / "nodes.conf"
        file.write_text(re.sub(r"@\d+", lambda _: f"@{free_port()}", file.read_text()))
        kept = list(self._args)
        kept[kept.index("--cluster-port") + 1] = str(free_port())
        self._args = kept
        self.start_again()

    def _own_args(self) -> Sequence[str]:
        self.bus_port = free_port()
        args = ("--cluster-port", str(self.bus_port))
        if self.certificates is None:
            return args
        self.tls_port = free_port()
        secret = ("--tls-cluster", "yes", "--tls-replication", "yes", "--tls-auth-clients", "no")
        return (*args, *self.certificates.server_args(self.tls_port), *secret)


@dataclass(frozen=True)
class Seen:
    """One node as another one sees it."""

    flags: frozenset[str]
    master_id: str
    slots: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, line: dict[str, object]) -> Seen:
        ranges = [r for r in line["slots"] if r]  # type: ignore[attr-defined]
        return cls(
            frozenset(str(line["flags"]).split(",")),
            str(line["master_id"]),
            tuple((int(r[0]), int(r[-1])) for r in ranges),
        )

    def has(self, slot: int) -> bool:
        return any(first <= slot <= last for first, last in self.slots)


@dataclass
class RunningCluster:
    """A cluster that belongs to a test."""

    kind: str
    nodes: list[ClusterNode]

    @property
    def url(self) -> str:
        """Where clients begin: every node, whatever its role is by now."""
        hosts = ",".join(f"127.0.0.1:{node.known_port}" for node in self.nodes)
        certificates = self.nodes[0].certificates
        if certificates is None:
            return f"redis+cluster://{hosts}"
        return f"rediss+cluster://{hosts}?ssl_ca_certs={quote(str(certificates.authority), '')}"

    @property
    def version(self) -> str:
        return str(self._alive()[0].info("server")["redis_version"])

    def masters(self) -> list[ClusterNode]:
        """The nodes that serve slots, as the first living node sees it."""
        view = self._alive()[0].view()
        return [node for node in self.nodes if node.alive and _serves(view.get(node.id))]

    def master_of(self, key: str) -> ClusterNode:
        """Who serves a key's slot."""
        slot = key_slot(key.encode())
        view = self._alive()[0].view()
        (found,) = (node for node in self.nodes if node.id in view and view[node.id].has(slot))
        return found

    def replica_of(self, master: ClusterNode) -> ClusterNode:
        """A living replica of a master."""
        view = self._alive()[0].view()
        return next(
            node for node in self.nodes
            if node.alive and node.id in view and view[node.id].master_id == master.id
        )  # fmt: skip

    def flush(self) -> None:
        """Empty every master: keys and scripts."""
        for master in self.masters():
            master.client.flushall()
            master.client.script_flush()

    def kill(self, node: ClusterNode) -> None:
        """SIGKILL."""
        node.kill()

    def start_again(self, node: ClusterNode) -> None:
        """Start a killed node and wait until the cluster is whole again."""
        node.start_again()
        self.until_ok()

    def frozen(self, node: ClusterNode) -> AbstractContextManager[None]:
        """SIGSTOP inside, SIGCONT afterwards."""
        return node.frozen()

    def until_promoted(self, replica: ClusterNode) -> None:
        """Wait until every living node knows a replica as a master that serves."""

        def promoted() -> bool:
            return all(_serves(node.view().get(replica.id)) for node in self._alive())

        wait_until(promoted, f"the promotion of {replica}")
        self.until_ok()

    def until_ok(self) -> None:
        """Wait until every living node says that all slots are served, and by whom, and until
        every living replica is linked."""
        wait_until(self._agrees, "a cluster whose nodes agree")

    def move(self, source: ClusterNode, target: ClusterNode, slot: int) -> SlotMove:
        """The move of one slot, to be done step by step."""
        return SlotMove(self, source, target, slot)

    def move_slots(self, source: ClusterNode, target: ClusterNode, slots: Sequence[int]) -> None:
        """Move slots with their keys, one after the other, as an operator would."""
        for slot in slots:
            move = self.move(source, target, slot)
            move.begin()
            while move.take(KEYS_AT_ONCE):
                pass
            move.finish()

    def _alive(self) -> list[ClusterNode]:
        return [node for node in self.nodes if node.alive]

    def _agrees(self) -> bool:
        alive = self._alive()
        views = [node.view() for node in alive]
        roles = {frozenset((node.id, view[node.id].master_id, view[node.id].slots)
                           for node in alive if node.id in view) for view in views}  # fmt: skip
        return (
            len(roles) == 1
            and all(slots or master != "-" for _, master, slots in next(iter(roles)))
            and all(_state(node) == "ok" for node in alive)
            and all(_linked(node) for node in alive)
            and all(node.id in view and not _failing(view[node.id])
                    for view in views for node in alive)
        )  # fmt: skip


@dataclass
class SlotMove:
    """A slot on its way from one master to another, step by step, so that a test may run in the
    middle: `begin`, `take` as often as there are keys, `finish`."""

    cluster: RunningCluster
    source: ClusterNode
    target: ClusterNode
    slot: int

    def begin(self) -> None:
        """From here on a key that the source lacks is answered with ASK."""
        self.target.ask("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self.source.id)
        self.source.ask("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self.target.id)

    def take(self, most: int = 1) -> list[str]:
        """Move some keys; those that were moved, none when all are there."""
        keys = list(self.source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, most))
        if keys:
            self.take_keys(keys)
        return keys

    def take_keys(self, keys: Sequence[str]) -> None:
        """Move these keys."""
        self.source.ask(
            "MIGRATE", "127.0.0.1", self.target.port, "", 0, 5000, "KEYS", *keys
        )  # fmt: skip

    def finish(self) -> None:
        """Give the slot to the target, tell every master, and wait until all nodes agree."""
        others = [m for m in self.cluster.masters() if m not in (self.source, self.target)]
        for node in (self.target, self.source, *others):
            node.ask("CLUSTER", "SETSLOT", self.slot, "NODE", self.target.id)
        self.cluster.until_ok()


@contextmanager
def running_cluster(
    kind: str = "redis",
    replicas: int = 0,
    args: Sequence[str] = (),
    *,
    node_timeout_ms: int = 2000,
    tls: bool = False,
) -> Iterator[RunningCluster]:
    """Start three masters, each with so many replicas, and stop them. `args` are further flags.

    A master that says nothing for `node_timeout_ms` is failed over; without replicas, give a long
    one: a busy machine is no failure. With `tls` nodes and clients speak nothing else.
    """
    program = program_of(kind)
    with tempfile.TemporaryDirectory(prefix="changeover-cluster-") as directory:
        place = Path(directory)
        certificates = Certificates.made_in(place / "certificates") if tls else None
        nodes = [
            ClusterNode([program], place / str(i), certificates)
            for i in range(MASTERS * (1 + replicas))
        ]
        cluster = RunningCluster(kind, nodes)
        try:
            for node in nodes:
                node.start(
                    "--cluster-enabled", "yes",
                    "--cluster-node-timeout", str(FORMING_TIMEOUT_MS),
                    "--cluster-replica-validity-factor", "0",
                    "--repl-diskless-sync-delay", "0",
                    *args,
                )  # fmt: skip
            _form(cluster)
            for node in nodes:
                node.client.config_set("cluster-node-timeout", node_timeout_ms)
            yield cluster
        finally:
            for node in nodes:
                node.kill()


def _form(cluster: RunningCluster) -> None:
    """Let the nodes meet, share the slots among the masters, give each its replicas."""
    masters, replicas = cluster.nodes[:MASTERS], cluster.nodes[MASTERS:]
    for number, node in enumerate(cluster.nodes, 1):
        node.id = node.ask("CLUSTER", "MYID")
        node.ask("CLUSTER", "SET-CONFIG-EPOCH", number)
    for i, master in enumerate(masters):
        first, last = SLOTS * i // MASTERS, SLOTS * (i + 1) // MASTERS - 1
        master.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
    for node in cluster.nodes[1:]:
        masters[0].ask("CLUSTER", "MEET", "127.0.0.1", node.known_port, node.bus_port)
    known = {node.id for node in cluster.nodes}
    wait_until(
        lambda: all(node.view().keys() == known for node in cluster.nodes), "a meeting of all nodes"
    )
    for i, replica in enumerate(replicas):
        replica.ask("CLUSTER", "REPLICATE", masters[i % MASTERS].id)
    cluster.until_ok()


def _serves(seen: Seen | None) -> bool:
    return seen is not None and bool(seen.slots) and not _failing(seen)


def _failing(seen: Seen) -> bool:
    return bool(seen.flags & {"fail", "fail?", "handshake", "noaddr"})


def _state(node: ClusterNode) -> str:
    try:
        found = node.client.execute_command("CLUSTER INFO")  # type: ignore[no-untyped-call]
    except GONE:
        return "gone"
    return str(found["cluster_state"])


def _linked(node: ClusterNode) -> bool:
    """Whether it is a master, or a replica whose link is up."""
    found = node.info("replication")
    return found.get("role") == "master" or found.get("master_link_status") == "up"
