"""A worker without a supervisor is killed: its sessions go on as soon as its connections are
missed, long before its leases end. And what is no evidence: connections that are cut, a Redis that
was away.

Leases are those of a real fleet, 30 s, so a session that goes on earlier was evicted; the journal
says which it was.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from changeover import SyncOperator
from changeover_shared._events import WorkerChanged
from changeover_shared._settings import Settings
from changeover_shared._store.keys import Keys
from tests.support.cluster import running_cluster
from tests.support.nodes import running_node
from tests.support.processes import Process, Processes, processes, wait_until
from tests.support.servers import running_server
from tests.support.working import own_fleet

pytestmark = pytest.mark.timeout(120)

APP = "tests.support.supervised_app:app"
LEASE_S = 30.0


@dataclass
class Fleet:
    """Workers without a supervisor."""

    processes: Processes
    operator: SyncOperator
    settings: Settings
    workers: dict[str, Process]

    def start(self, name: str) -> None:
        """Start a worker."""
        args = ("-m", "changeover_worker", APP, "--name", name, "-c", "20")
        self.workers[name] = self.processes.python(name, *args, CHANGEOVER_LOG_FORMAT="json")
        wait_until(lambda: name in self.registered(), f"{name} is registered")

    def registered(self) -> dict[str, str]:
        """Name -> incarnation."""
        return {one.worker: one.incarnation for one in self.operator.workers()}

    def begin(self, session: str) -> str:
        """Have a long turn streamed; the name of who holds it."""
        self.operator.submit(session, "hello", agent="slow")
        wait_until(lambda: bool(self.holder(session)), f"{session} is held")
        return self.holder(session)

    def holder(self, session: str) -> str:
        """The name of who holds a session."""
        return (self.operator.session(session).worker or "").rpartition(":")[0]

    def changes(self, session: str) -> list[str]:
        """Why it is with another worker than before."""
        events = self.operator.events(session).items
        return [one.reason for one in events if isinstance(one, WorkerChanged)]

    def logged(self, code: str) -> list[str]:
        """The lines of all logs that have a code."""
        lines = [line for one in self.workers.values() for line in one.text.splitlines()]
        return [line for line in lines if f'"{code}"' in line]

    def close_by(self, client: redis.Redis) -> None:
        """Wait until somebody leads and somebody is the deputy, and both have looked for newcomers
        since the last worker came: each looks twice a second, and for newcomers every tenth time.
        """
        keys = Keys(self.settings.prefix, self.settings.partitions)
        wait_until(lambda: bool(client.get(keys.sweep)), "somebody leads")
        wait_until(lambda: bool(client.get(keys.deputy)), "somebody is the deputy")
        calls = _lists(client)
        wait_until(lambda: _lists(client) > calls + 30, "they have looked around")


def _lists(client: redis.Redis) -> int:
    stats = client.info("commandstats")
    return int(stats.get("cmdstat_client|list", {}).get("calls", 0))


@contextmanager
def fleet(url: str, directory: Path, **given: str) -> Iterator[Fleet]:
    settings = own_fleet(**{"lease": "30s", "renew": "10s", "margin": "3s", **given})
    environment = {
        "CHANGEOVER_REDIS_URL": url,
        "CHANGEOVER_PREFIX": settings.prefix,
        "CHANGEOVER_PARTITIONS": str(settings.partitions),
        **{f"CHANGEOVER_{name.upper()}": value for name, value in given.items()},
    }
    with SyncOperator(url, settings=settings) as client, processes(directory, environment) as own:
        yield Fleet(own, client, settings, {})


@contextmanager
def served(directory: Path) -> Iterator[tuple[Fleet, redis.Redis]]:
    """A fleet on a server of its own, and a connection to that."""
    with (
        running_server() as url,
        redis.Redis.from_url(url) as client,
        fleet(url, directory) as found,
    ):
        yield found, client


@pytest.fixture
def seed() -> int:
    """Printed when a test fails."""
    chosen = int(os.environ.get("SEED") or random.randrange(10**6))
    print(f"seed {chosen}")  # noqa: T201 - shown with a failure
    return chosen


@pytest.mark.parametrize("duty", ["the leader", "the deputy", "any other"])
def test_the_sessions_of_a_killed_worker_go_on_within_seconds(duty: str, tmp_path: Path) -> None:
    with served(tmp_path) as (at, client):
        for name in ("a", "b", "c"):
            at.start(name)
        at.close_by(client)
        _is_evicted(at, _of_duty(at, client, duty))


def test_the_same_in_a_cluster(tmp_path: Path) -> None:
    """Hole 22: its connections are missing on every primary."""
    with running_cluster() as cluster, fleet(cluster.url, tmp_path) as at:
        for name in ("a", "b", "c"):
            at.start(name)
        asked = sum(_lists(node.client) for node in cluster.masters())
        wait_until(
            lambda: sum(_lists(node.client) for node in cluster.masters()) > asked + 100,
            "they have looked around",
        )
        _is_evicted(at, at.begin("s:1"))


def _of_duty(at: Fleet, client: redis.Redis, duty: str) -> str:
    keys = Keys(at.settings.prefix, at.settings.partitions)
    leads, helps = (_name(client.get(key)) for key in (keys.sweep, keys.deputy))
    match duty:
        case "the leader":
            return leads
        case "the deputy":
            return helps
        case _:
            return next(name for name in at.workers if name not in (leads, helps))


def _name(incarnation: object) -> str:
    assert isinstance(incarnation, bytes)
    return incarnation.decode().rpartition(":")[0]


def _is_evicted(at: Fleet, victim: str) -> None:
    """Kill a worker that holds a session; another one must go on because its death was seen."""
    session = next(name for name in map("v:{}".format, range(50)) if at.begin(name) == victim)
    began = time.monotonic()
    at.workers[victim].kill()
    wait_until(lambda: at.holder(session) not in ("", victim), "it goes on")
    print(f"went on after {time.monotonic() - began:.1f} s")  # noqa: T201 - a measurement
    assert at.changes(session) == ["evicted"]
    assert at.logged("worker_evicted")


@pytest.mark.parametrize("whose", ["everybody's", "its own"])
def test_a_healthy_worker_is_not_evicted_while_connections_are_cut(
    whose: str, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    with served(tmp_path) as (at, client):
        for name in ("a", "b", "c"):
            at.start(name)
        at.close_by(client)
        holder = at.begin("s:1")
        began = _lists(client)
        cuts = 0
        while _lists(client) < began + 40 or cuts < 15:
            for one in client.client_list(_type="normal"):
                mine = one["name"].startswith(f"{holder}:")
                if mine or (whose == "everybody's" and chance.random() < 0.7):
                    client.client_kill_filter(_id=one["id"], skipme=True)
            cuts += 1
            time.sleep(chance.uniform(0.3, 1.1))
        assert at.logged("worker_evicted") == []
        assert at.holder("s:1") == holder
        assert at.operator.session("s:1").fence == 1


def test_a_redis_that_was_restarted_is_no_evidence(tmp_path: Path) -> None:
    """Hole 22. Who died meanwhile is taken over when its leases end."""
    args = ("--appendonly", "yes", "--appendfsync", "always")
    with (
        running_node("valkey", args) as node,
        fleet(node.url, tmp_path, lease="6s", renew="2s", margin="1s") as at,
    ):
        for name in ("a", "b", "c"):
            at.start(name)
        at.close_by(node.client)
        victim = at.begin("s:1")
        node.kill()
        at.workers[victim].kill()
        node.start_again()
        at.operator.close()
        with SyncOperator(node.url, settings=at.settings) as at.operator:
            wait_until(lambda: at.holder("s:1") not in ("", victim), "it goes on")
            assert at.changes("s:1") == ["taken_over"]
        assert at.logged("worker_evicted") == []


def test_who_may_not_see_connections_says_so(tmp_path: Path) -> None:
    with running_server() as url, redis.Redis.from_url(url) as client:
        rules = ("on", ">p", "~*", "+@all", "-client|list")
        client.execute_command("ACL", "SETUSER", "blind", *rules)
        short = {"lease": "6s", "renew": "2s", "margin": "1s"}
        with fleet(url.replace("redis://", "redis://blind:p@"), tmp_path, **short) as at:
            at.start("a")
            wait_until(lambda: bool(at.logged("no_evidence")), "it says so in its log")
            wait_until(
                lambda: not any(one.sees_connections for one in at.operator.workers()),
                "its entry in the registry says so",
            )
            found = {one.code: one for one in at.operator.doctor().findings}
            assert "worker a cannot see" in found["deaths_unseen"].text
