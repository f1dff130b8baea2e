"""An event loop that is blocked loses its sessions, and what it writes when it wakes is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from changeover import SyncOperator, WorkerChanged
from changeover_shared._settings import Settings
from tests.support.processes import Process, Processes, processes, wait_until
from tests.support.servers import running_server
from tests.support.storms import entries

pytestmark = pytest.mark.timeout(90)

TOLD = {"lease": "1500ms", "renew": "400ms", "margin": "200ms", "loop_lag_limit": "500ms"}


def start(running: Processes, name: str) -> Process:
    """A worker of the app whose tool blocks."""
    args = ("-m", "changeover_worker", "tests.support.blocking_app:app", "--name", name)
    return running.python(name, *args)


def test_a_blocked_loop_loses_its_sessions_and_goes_on_with_others(tmp_path: Path) -> None:
    with running_server() as url:
        environment = {f"CHANGEOVER_{name.upper()}": value for name, value in TOLD.items()}
        environment |= {"CHANGEOVER_REDIS_URL": url, "CHANGEOVER_LOG_FORMAT": "json"}
        environment["MARK"] = str(tmp_path / "mark")
        settings = Settings(redis_url=url)
        with (
            processes(tmp_path, environment) as running,
            SyncOperator(url, settings=settings) as operator,
        ):
            first = start(running, "a")
            wait_until(lambda: bool(entries(first, "worker_ready")), "the first one is ready")
            receipt = operator.submit("s:1", "hello", agent="blocked")
            wait_until(lambda: Path(environment["MARK"]).exists(), "its loop is blocked")
            second = start(running, "b")
            assert operator.wait("s:1", receipt.submission_id, timeout="30s").text == "done"
            (taken,) = entries(second, "session_taken")
            assert (taken["from"], taken["reason"]) == ("a", "taken_over")
            events = operator.events("s:1").items
            assert [one.reason for one in events if isinstance(one, WorkerChanged)] == [
                "taken_over"
            ]
            assert [one.type for one in events].count("turn_completed") == 1

            # A probe would have had it restarted; it was left, and is a worker like any other.
            wait_until(lambda: bool(entries(first, "live_again")), "it wakes up")
            assert entries(first, "loop_blocked")
            assert entries(first, "not_live")
            lost = [*entries(first, "lease_lost"), *entries(first, "write_refused")]
            assert [one["session"] for one in lost] == ["s:1"]
            second.kill()
            again = operator.submit("s:2", "hello", agent="blocked")
            assert operator.wait("s:2", again.submission_id, timeout="30s").text == "done"
