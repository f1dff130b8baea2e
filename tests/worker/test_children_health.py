"""What the parent of several worker processes answers for them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from changeover import SyncClient
from changeover_worker._process.children import merged
from tests.support.nodes import Node, running_node
from tests.support.probing import Reply, ask, samples
from tests.support.processes import Process, processes, wait_until
from tests.support.working import own_fleet


@pytest.fixture(scope="module")
def server() -> Iterator[Node]:
    with running_node() as server:
        yield server


@contextmanager
def two_workers(server: Node, directory: Path) -> Iterator[tuple[SyncClient, str, Process]]:
    """A client, where the parent answers, and the parent."""
    settings = own_fleet()
    where = f"unix:{directory / 'parent'}"
    environment = {
        "CHANGEOVER_REDIS_URL": server.url,
        "CHANGEOVER_PREFIX": settings.prefix,
        "CHANGEOVER_PARTITIONS": str(settings.partitions),
        "CHANGEOVER_HEALTH_BIND": where,
        "CHANGEOVER_LOOP_LAG_LIMIT": "500ms",
    }
    command = ("-m", "changeover_worker", "tests.support.supervised_app:app", "-p", "2")
    with (
        SyncClient(server.url, settings=settings) as client,
        processes(directory, environment) as started,
    ):
        parent = started.python("parent", *command, "--name", "w")
        wait_until(lambda: "health_listening" in parent.text, "the parent listens")
        until(where, "/readyz", 200)
        yield client, where, parent


def until(at: str, path: str, status: int) -> Reply:
    wait_until(lambda: ask(at, path).status == status, f"{path} answers {status}")
    return ask(at, path)


def pids(at: str) -> dict[str, int]:
    return {one["worker"]: one.get("pid", 0) for one in ask(at, "/status").json["workers"]}


def test_the_parent_answers_for_all_of_its_children(server: Node, tmp_path: Path) -> None:
    with two_workers(server, tmp_path) as (client, at, parent):
        assert ask(at, "/livez").text == "live\n"
        status = ask(at, "/status").json
        assert (status["live"], status["ready"]) == (True, True)
        assert [one["worker"] for one in status["workers"]] == ["w-1", "w-2"]
        for n in range(6):
            client.run(f"quick:{n}", "hello", agent="quick", timeout="30s")
        found = samples(ask(at, "/metrics").text)
        ended = 'turns_total{agent="quick",ending="completed",worker="w-%d"}'
        assert sum(found.get(ended % n, 0) for n in (1, 2)) == 6
        assert found['worker_answers{worker="w-1"}'] == found['worker_answers{worker="w-2"}'] == 1
        parent.send(signal.SIGTERM)
        assert parent.popen.wait(20) == 0


def test_a_frozen_child_is_not_live_and_a_dead_one_is_only_not_ready(
    server: Node, tmp_path: Path
) -> None:
    with two_workers(server, tmp_path) as (_, at, _parent):
        first = pids(at)["w-1"]
        os.kill(first, signal.SIGSTOP)
        try:
            assert until(at, "/livez", 503).text == "w-1: does not answer\n"
            scraped = samples(ask(at, "/metrics").text)
            assert scraped['worker_answers{worker="w-1"}'] == 0
            assert 'worker_slots{state="free",worker="w-2"}' in scraped
            assert 'worker_slots{state="free",worker="w-1"}' not in scraped
        finally:
            os.kill(first, signal.SIGCONT)
        until(at, "/livez", 200)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: pids(at)["w-1"] not in (0, first), "it was replaced")
        until(at, "/readyz", 200)


def test_a_parent_whose_address_is_taken_starts_no_child(server: Node, tmp_path: Path) -> None:
    environment = {
        "CHANGEOVER_REDIS_URL": server.url,
        "CHANGEOVER_PREFIX": own_fleet().prefix,
        "CHANGEOVER_HEALTH_BIND": f"127.0.0.1:{server.port}",
    }
    command = ("-m", "changeover_worker", "tests.support.supervised_app:app", "-p", "2")
    with processes(tmp_path, environment) as started:
        parent = started.python("parent", *command)
        assert parent.popen.wait(30) == 78
        assert "cannot listen on" in parent.text
        assert "worker_started" not in parent.text


def test_merged_metrics_keep_their_kinds_and_their_texts() -> None:
    one = (
        "# HELP a_total Of \\\\ one.\n# TYPE a_total counter\n"
        'a_total{kind="x \\"y\\" \\n"} 3.0\n'
        "# HELP b Seconds.\n# TYPE b histogram\n"
        'b_bucket{le="1.0"} 2.0\nb_bucket{le="+Inf"} 3.0\nb_count 3.0\nb_sum 4.5\n'
    )
    text = merged({"w-1": one, "w-2": one}, ["w-1", "w-2", "w-3"]).decode()
    assert text.count("# TYPE a_total counter") == text.count("# TYPE b histogram") == 1
    found = samples(text)
    assert found['worker_answers{worker="w-3"}'] == 0
    assert found['a_total{kind="x "y" \n",worker="w-2"}'] == 3
    assert found['b_bucket{le="+Inf",worker="w-1"}'] == 3
    assert found['b_sum{worker="w-1"}'] == 4.5
