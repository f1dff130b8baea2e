"""A server that belongs to one measurement, and the counters that it keeps of itself."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from benchmarks._processes import running
from changeover_shared._server.connect import sync_client
from changeover_shared._server.process import LOOPBACK, find_program
from changeover_shared._server.url import parse_url

_READY_WITHIN_S = 20.0


@dataclass(frozen=True)
class Counters:
    """What INFO said at one moment, or what has been added between two."""

    cpu_us: float
    commands: float
    """Those inside scripts among them."""
    script_calls: float
    script_us: float
    input_bytes: float
    reads: float
    """From sockets; fewer than commands where they arrive together."""

    def since(self, before: Counters) -> Counters:
        """What has been added since `before`."""
        return Counters(
            self.cpu_us - before.cpu_us,
            self.commands - before.commands,
            self.script_calls - before.script_calls,
            self.script_us - before.script_us,
            self.input_bytes - before.input_bytes,
            self.reads - before.reads,
        )


class Server:
    """A running server."""

    def __init__(self, port: int, directory: Path) -> None:
        self.port = port
        self.directory = directory
        self.url = f"redis://{LOOPBACK}:{port}/0"
        self.client = sync_client(parse_url(self.url))

    def info(self) -> dict[str, Any]:
        """Every section of INFO."""
        return dict(self.client.info("all"))

    def counters(self) -> Counters:
        """Where the counters stand now."""
        info = self.info()
        scripts = info.get("cmdstat_evalsha", {"calls": 0, "usec": 0})
        return Counters(
            cpu_us=1e6 * (float(info["used_cpu_user"]) + float(info["used_cpu_sys"])),
            commands=info["total_commands_processed"],
            script_calls=scripts["calls"],
            script_us=scripts["usec"],
            input_bytes=info["total_net_input_bytes"],
            reads=info["total_reads_processed"],
        )

    def data_bytes(self) -> int:
        """Memory in use without the buffers of clients."""
        info = self.info()
        return int(info["used_memory"]) - int(info.get("mem_clients_normal", 0))


@contextmanager
def server(*, durable: bool = False) -> Iterator[Server]:
    """Run the embedded extra's Valkey, or a server from PATH, as a process of its own.

    `durable` turns its append-only file on, written through once a second.
    """
    with tempfile.TemporaryDirectory(prefix="changeover-bench-") as name:
        directory, port = Path(name), _free_port()
        with running(_command(directory, port, durable)) as process:
            found = Server(port, directory)
            with closing(found.client):
                _await_answer(found)
                process.check_alive()
                yield found


def version() -> str:
    """What `server` runs."""
    with server() as found:
        info = found.info()
        make = str(info.get("server_name", "redis"))
        return f"{make} {info.get(f'{make}_version', info['redis_version'])}"


def _command(directory: Path, port: int, durable: bool) -> list[str]:
    flags = {
        "port": str(port),
        "bind": LOOPBACK,
        "dir": str(directory),
        "logfile": str(directory / "server.log"),
        "save": "",
        "appendonly": "yes" if durable else "no",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
    }
    return [
        find_program(),
        *(word for name, value in flags.items() for word in (f"--{name}", value)),
    ]


def _await_answer(found: Server) -> None:
    deadline = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < deadline:
        with suppress(redis.ConnectionError):
            found.client.ping()
            return
        time.sleep(0.01)
    raise RuntimeError(f"the server on port {found.port} did not answer")


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
