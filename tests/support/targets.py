"""What the store is tested on: fakeredis, single servers, a Cluster and a Sentinel group.

Each is started when a test first asks for it, one a session, and emptied before each test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version

import redis

from tests.support.cluster import running_cluster
from tests.support.losing import LOSING
from tests.support.sentinel import running_sentinel
from tests.support.servers import SERVERS, flush, running_server

TARGETS = ("fakeredis", *SERVERS, "cluster", "sentinel")
"""What can be started here."""
MADE_OF = SERVERS[-1]
"""The kind of server that the Cluster and the Sentinel group are made of."""
PATIENCE_MS = 60_000
"""Nothing fails over under the suite, however busy the machine is."""


@dataclass(frozen=True)
class Target:
    """One of them, running."""

    url: str
    """Empty on fakeredis, whose server is made by the test."""
    shown: str
    """Its name and version, as people may read it."""
    flush: Callable[[], None]


class Targets(dict[str, Target]):
    """The targets by name, each started when it is first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        super().__init__()
        self._stack = stack

    def __missing__(self, name: str) -> Target:
        if name == LOSING:
            self[name] = replace(self[MADE_OF], shown=f"losing before {self[MADE_OF].shown}")
        else:
            self[name] = self._stack.enter_context(_STARTED.get(name, partial(_server, name))())
        return self[name]


@contextmanager
def running_targets() -> Iterator[Targets]:
    """No target yet; all that were asked for are stopped afterwards."""
    with ExitStack() as stack:
        yield Targets(stack)


@contextmanager
def _fakeredis() -> Iterator[Target]:
    yield Target("", f"fakeredis {version('fakeredis')}", lambda: None)


@contextmanager
def _server(kind: str) -> Iterator[Target]:
    with running_server(kind) as url:
        shown = version_at(url)
        yield Target(url, f"other {shown}" if kind == "other" else shown, partial(flush, url))


@contextmanager
def _cluster() -> Iterator[Target]:
    with running_cluster(MADE_OF, node_timeout_ms=PATIENCE_MS) as cluster:
        shown = version_at(cluster.nodes[0].url)
        yield Target(cluster.url, f"cluster of 3 masters, {shown}", cluster.flush)


@contextmanager
def _sentinel() -> Iterator[Target]:
    with running_sentinel(MADE_OF, down_after_ms=PATIENCE_MS) as group:
        shown = version_at(group.servers[0].url)
        yield Target(group.url, f"sentinel with 2 replicas, {shown}", group.flush)


_STARTED = {"fakeredis": _fakeredis, "cluster": _cluster, "sentinel": _sentinel}


def version_at(url: str) -> str:
    """The name and version of the server at a URL."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        info = client.info("server")
    made = "valkey" if "valkey_version" in info else "redis"
    return f"{made} {info[f'{made}_version']}"
