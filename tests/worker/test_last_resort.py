"""A worker process that was told to stop ends, whatever is left behind in it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import wait_until
from tests.support.servers import running_server
from tests.worker.test_supervisor import fleet

APP = "tests.support.clinging_app:app"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.mark.parametrize("left", ["swallows", "sleeps_in_a_thread", "starts_a_thread"])
def test_a_drained_worker_ends_whatever_a_tool_has_left_behind(
    url: str, tmp_path: Path, left: str
) -> None:
    with fleet(url, tmp_path) as at:
        worker = at.start(app=APP)
        receipt = at.client.submit("s", "hello", agent=left)
        assert at.client.wait("s", receipt.submission_id, timeout="20s").text == "done"
        worker.send(signal.SIGTERM)
        assert worker.popen.wait(20) == 0
        assert '"event": "drained"' in worker.text
        assert '"left_behind"' in worker.text


@pytest.mark.parametrize("where", ["start", "clean-up"])
def test_a_lifespan_that_hangs_keeps_no_process(url: str, tmp_path: Path, where: str) -> None:
    with fleet(url, tmp_path) as at:
        worker = at.start(app=APP, CLINGING=where)
        said = "hangs" if where == "start" else "worker_ready"
        wait_until(lambda: said in worker.text, "it has come so far")
        worker.send(signal.SIGTERM)
        assert worker.popen.wait(20) == 75
        assert "left_behind" in worker.text


def test_a_second_signal_ends_a_worker_sooner_than_its_grace(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path) as at:
        worker = at.start(app=APP, CLINGING="clean-up", CHANGEOVER_DRAIN_GRACE="1h")
        wait_until(lambda: "worker_ready" in worker.text, "it is ready")
        worker.send(signal.SIGTERM)
        wait_until(lambda: "drain_started" in worker.text, "it drains")
        worker.send(signal.SIGTERM)
        assert worker.popen.wait(20) == 75
        assert "left_behind" in worker.text


def test_a_worker_whose_loop_is_blocked_ends(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path) as at:
        worker = at.start(app=APP)
        at.client.submit("s", "hello", agent="blocks")
        wait_until(lambda: "blocked" in worker.text, "the loop is blocked")
        worker.send(signal.SIGTERM)
        assert worker.popen.wait(20) == 75
        assert "drain_started" not in worker.text


def test_a_worker_that_ends_by_itself_is_left_alone(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path) as at:
        worker = at.start(app=APP)
        wait_until(lambda: "worker_ready" in worker.text, "it is ready")
        worker.send(signal.SIGTERM)
        assert worker.popen.wait(20) == 0
        assert "left_behind" not in worker.text


def test_a_child_that_ends_as_if_it_had_drained_is_evicted_and_replaced(
    url: str, tmp_path: Path
) -> None:
    with fleet(url, tmp_path) as at:
        supervisor = at.start("--processes", "2", "--name", "w", app=APP)
        before = {one.incarnation for one in at.wait_for_workers(2)}
        receipt = at.client.submit("s", "hello", agent="exits")
        outcome = at.client.wait("s", receipt.submission_id, timeout="20s")
        assert outcome.text == "done"
        wait_until(lambda: "worker_evicted" in supervisor.text, "its sessions are offered")
        assert '"exit": 0' in supervisor.text and "worker_died" in supervisor.text
        wait_until(
            lambda: len(at.workers()) == 2 and {o.incarnation for o in at.workers()} != before,
            "it was replaced",
        )
        supervisor.send(signal.SIGTERM)
        assert supervisor.popen.wait(20) == 0
