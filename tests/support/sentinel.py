"""Sentinels, one primary and its replicas as local processes, that fail over within a second or
two. Tests look into each server over redis-py; clients are given the Sentinels alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from tests.support.nodes import GONE, Node, program_of
from tests.support.processes import wait_until

SERVICE = "main"
SENTINELS = 3
QUORUM = 2
DOWN_AFTER_MS = 1000
FAILOVER_TIMEOUT_MS = 1000
"""Twice as long must pass between two failovers that Sentinels begin."""
PACE = (
    "ping-period", 250,  # also how long after a lost connection they try again
    "info-period", 300,  # they learn of a replica, and of its promotion, from INFO
    "publish-period", 200,  # and of one another from what each publishes
    "ask-period", 300,
    "election-timeout", 2000,
    "slave-reconf-timeout", 1000,
    "tilt-period", 1000,  # a busy machine makes them doubt their clocks: not for 30 s here
)  # fmt: skip


class SentinelNode(Node):
    """One Sentinel. It writes into its configuration what it learns."""

    def __init__(self, program: str, directory: Path) -> None:
        self.configuration = directory / "sentinel.conf"
        super().__init__([program, str(self.configuration), "--sentinel"], directory)

    def primary_port(self) -> int:
        """Where it says that the primary is; 0 when it does not answer."""
        try:
            return int(self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])
        except GONE:
            return 0

    def is_at_rest(self, replicas: int, others: int) -> bool:
        """Whether it sees nothing to do, and all the others."""
        try:
            seen = pairs(self.ask("SENTINEL", "MASTER", SERVICE))
            known = [pairs(one) for one in self.ask("SENTINEL", "REPLICAS", SERVICE)]
        except GONE:
            return False
        sound = [one for one in known
                 if one["flags"] == "slave" and one["master-link-status"] == "ok"]  # fmt: skip
        return (
            seen["flags"] == "master"
            and int(seen["num-other-sentinels"]) == others
            and len(sound) >= replicas
        )


@dataclass
class RunningSentinel:
    """A group of servers under Sentinels that belongs to a test."""

    kind: str
    servers: list[Node]
    sentinels: list[SentinelNode]

    @property
    def url(self) -> str:
        """Where clients begin: the Sentinels and the name of the service."""
        return f"redis+sentinel://{','.join(one.address for one in self.sentinels)}/{SERVICE}"

    def primary(self) -> Node:
        """The primary that every living Sentinel names; waits while they disagree."""
        return self._until_named(lambda primary: True, "Sentinels that agree")

    def replicas(self) -> list[Node]:
        """The living servers that are not the primary."""
        primary = self.primary()
        return [server for server in self.servers if server.alive and server is not primary]

    def flush(self) -> None:
        """Empty the primary: keys and scripts; the replicas follow."""
        client = self.primary().client
        client.flushall()
        client.script_flush()

    def fail_over(self, *, kill: bool = False) -> Node:
        """Have a replica promoted: by SENTINEL FAILOVER, or because the primary is killed, which
        is then started again. Waits until all are at rest; returns who is the primary then."""
        old = self.primary()
        if kill:
            old.kill()
        else:
            self._ask_for_a_failover()
        self.until_promoted(old)
        if kill:
            old.start_again()
        return self.until_ok()

    def kill(self, node: Node) -> None:
        """SIGKILL."""
        node.kill()

    def frozen(self, node: Node) -> AbstractContextManager[None]:
        """SIGSTOP inside, SIGCONT afterwards; a frozen primary is failed over as a killed one."""
        return node.frozen()

    def until_promoted(self, old: Node) -> Node:
        """Wait until every living Sentinel names another primary than `old`; that one."""
        return self._until_named(lambda primary: primary is not old, f"a failover from {old}")

    def until_ok(self) -> Node:
        """Wait until all Sentinels agree and are at rest, and all living servers follow the
        primary, so that the next failover may begin. Returns the primary."""
        return self._until_named(self._is_at_rest, "a group at rest")

    def _is_at_rest(self, primary: Node) -> bool:
        living = [server for server in self.servers if server.alive]
        return all(server is primary or server.follows(primary) for server in living) and all(
            one.is_at_rest(len(living) - 1, len(self.sentinels) - 1)
            for one in self.sentinels
            if one.alive
        )

    def _ask_for_a_failover(self) -> None:
        def begun() -> bool:
            try:
                self.sentinels[0].ask("SENTINEL", "FAILOVER", SERVICE)
            except redis.ResponseError as refusal:
                assert str(refusal).startswith(("INPROG", "NOGOODSLAVE")), refusal
                return False
            return True

        wait_until(begun, "a failover that a Sentinel begins")

    def _until_named(self, fits: Callable[[Node], bool], description: str) -> Node:
        """Wait until all living Sentinels name one primary that fits."""
        found: list[Node] = []

        def named() -> bool:
            ports = {one.primary_port() for one in self.sentinels if one.alive}
            found[:] = [server for server in self.servers if {server.port} == ports]
            return bool(found) and fits(found[0])

        wait_until(named, description)
        return found[0]


@contextmanager
def running_sentinel(
    kind: str = "redis",
    replicas: int = 2,
    args: Sequence[str] = (),
    *,
    down_after_ms: int = DOWN_AFTER_MS,
) -> Iterator[RunningSentinel]:
    """Start a primary, its replicas and three Sentinels, and stop them. `args` are further flags
    of the servers.

    A primary that says nothing for `down_after_ms` is failed over; where no failover is wanted,
    give a long one: a busy machine is no failure.
    """
    program = program_of(kind)
    with tempfile.TemporaryDirectory(prefix="changeover-sentinel-") as directory:
        place = Path(directory)
        servers = [Node([program], place / f"server-{i}") for i in range(1 + replicas)]
        sentinels = [SentinelNode(program, place / f"sentinel-{i}") for i in range(SENTINELS)]
        group = RunningSentinel(kind, servers, sentinels)
        try:
            primary, *others = servers
            primary.start("--repl-diskless-sync-delay", "0", *args)
            for other in others:
                other.start(
                    "--replicaof", f"127.0.0.1 {primary.port}",
                    "--repl-diskless-sync-delay", "0",
                    *args,
                )  # fmt: skip
            for sentinel in sentinels:
                _watch(sentinel, primary.port, down_after_ms)
            group.until_ok()
            yield group
        finally:
            for node in (*servers, *sentinels):
                node.kill()


def _watch(sentinel: SentinelNode, port: int, down_after_ms: int) -> None:
    """Start a Sentinel that watches the primary on `port`."""
    sentinel.directory.mkdir()
    sentinel.configuration.write_text(
        f"sentinel monitor {SERVICE} 127.0.0.1 {port} {QUORUM}\n"
        f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}\n"
        f"sentinel failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MS}\n"
        f"sentinel parallel-syncs {SERVICE} 8\n"
    )
    sentinel.start()
    sentinel.ask("SENTINEL", "DEBUG", *PACE)


def pairs(flat: Any) -> dict[str, Any]:
    """A flat reply of names and values, which some versions of redis-py have read already."""
    return flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
