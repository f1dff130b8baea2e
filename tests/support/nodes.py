"""Servers to which something happens, alone or as those of a Cluster or of a Sentinel group: each
keeps its port and directory, may be killed, frozen and started again, and is gone afterwards."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.processes import wait_until
from tests.support.servers import PORTS_TO_TRY, binary, free_port, started_on

GONE = (redis.ConnectionError, redis.TimeoutError)


class Node:
    """One server process."""

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self._command = command
        self._args: Sequence[str] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.port})"

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """This server alone, for a test that looks into it."""
        return f"redis://{self.address}/0"

    @property
    def alive(self) -> bool:
        """Whether it runs and is not frozen."""
        return self._process is not None and self._process.poll() is None and not self._frozen

    @cached_property
    def client(self) -> redis.Redis:
        """A connection for the test: text, no retry, and short of patience."""
        return redis.Redis(
            port=self.port, decode_responses=True, protocol=2, socket_timeout=5,
            retry=Retry(NoBackoff(), 0),
        )  # fmt: skip

    def ask(self, *command: Any) -> Any:
        """One command to this very server."""
        return self.client.execute_command(*command)  # type: ignore[no-untyped-call]

    def info(self, section: str) -> dict[str, Any]:
        """INFO of this server; nothing when it does not answer."""
        with suppress(*GONE):
            return dict(self.client.info(section))
        return {}

    def start(self, *args: str) -> None:
        """Start on a free port, which it keeps."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for _ in range(PORTS_TO_TRY):
            self.port = free_port()
            self._args = [*args, *self._own_args()]
            self._process = started_on(self._command, self.port, self.directory, self._args)
            if self._process is not None:
                return
        raise RuntimeError(f"{self._command[0]} did not start on {PORTS_TO_TRY} ports")

    def start_again(self) -> None:
        """Start where it was, with what it had written."""
        assert not self.alive, "it still runs"
        self._process = started_on(self._command, self.port, self.directory, self._args)
        assert self._process is not None, f"port {self.port} was taken meanwhile"

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if "client" in self.__dict__:
            self.client.connection_pool.disconnect()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop its clock, so to say: it answers nothing, and its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self._frozen = True
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)
            self._frozen = False

    def follows(self, primary: Node) -> bool:
        """Whether this is a replica of `primary` with its link up."""
        mine = self.info("replication")
        return (
            mine.get("role") == "slave"
            and int(mine.get("master_port", 0)) == primary.port
            and mine.get("master_link_status") == "up"
        )

    def until_it_has_all_of(self, primary: Node) -> None:
        """Wait until this replica has what its primary had just now."""
        written = primary.info("replication").get("master_repl_offset", 0)
        wait_until(
            lambda: self.info("replication").get("slave_repl_offset", -1) >= written,
            f"{self} in step with {primary}",
        )

    def _own_args(self) -> Sequence[str]:
        """What is decided anew with each port that is tried."""
        return ()


@contextmanager
def running_node(kind: str = "valkey", args: Sequence[str] = ()) -> Iterator[Node]:
    """Start one server by itself, and stop it. `args` are further flags."""
    with tempfile.TemporaryDirectory(prefix="changeover-test-") as directory:
        node = Node([program_of(kind)], Path(directory))
        try:
            node.start(*args)
            yield node
        finally:
            node.kill()


def program_of(kind: str) -> str:
    """The program of a kind of server that is installed."""
    program = binary(kind)
    if program is None:
        raise RuntimeError(f"no {kind} server is installed")
    return program
