from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from changeover import SyncOperator, WorkerInfo
from changeover_shared._events import WorkerChanged
from changeover_shared._settings import Settings
from changeover_worker._process.supervisor import Supervisor
from tests.support.processes import Process, Processes, processes, wait_until
from tests.support.servers import free_port, running_server
from tests.support.working import capture, own_fleet

APP = "tests.support.supervised_app:app"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server() as url:
        yield url


@dataclass
class Fleet:
    """Processes of one fleet, and a client that looks at it."""

    processes: Processes
    client: SyncOperator
    settings: Settings

    def start(self, *options: str, app: str = APP, **environment: str) -> Process:
        """Start `changeover worker`."""
        command = ("-m", "changeover_worker", app, *options)
        return self.processes.python("worker", *command, **environment)

    def workers(self) -> tuple[WorkerInfo, ...]:
        return self.client.workers()

    def wait_for_workers(self, count: int) -> tuple[WorkerInfo, ...]:
        wait_until(lambda: len(self.workers()) == count, f"{count} workers registered")
        return self.workers()

    def wait_for_holder(self, session: str, *, other_than: str = "") -> str:
        """The incarnation that holds a session."""

        def holder() -> str:
            return self.client.session(session).worker or ""

        wait_until(lambda: holder() not in ("", other_than), f"{session} is held")
        return holder()


@contextmanager
def fleet(url: str, directory: Path) -> Iterator[Fleet]:
    settings = own_fleet(drain_grace="100ms")
    environment = {
        "CHANGEOVER_REDIS_URL": url,
        "CHANGEOVER_PREFIX": settings.prefix,
        "CHANGEOVER_PARTITIONS": str(settings.partitions),
        "CHANGEOVER_DRAIN_GRACE": "100ms",
    }
    with (
        SyncOperator(url, settings=settings) as client,
        processes(directory, environment) as started,
    ):
        yield Fleet(started, client, settings)


def test_a_killed_child_is_evicted_at_once_and_replaced(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path) as at:
        supervisor = at.start("--processes", "2", "--name", "w")
        before = {one.incarnation: one for one in at.wait_for_workers(2)}
        at.client.submit("slow:1", "hello", agent="slow")
        first = at.wait_for_holder("slow:1")
        os.kill(before[first].pid, signal.SIGKILL)
        second = at.wait_for_holder("slow:1", other_than=first)
        # The lease was good for 30 s: nobody waited for it, and the takeover is counted as one.
        events = at.client.events("slow:1").items
        assert [one.reason for one in events if isinstance(one, WorkerChanged)] == ["evicted"]
        wait_until(
            lambda: len(at.workers()) == 2 and first not in {o.incarnation for o in at.workers()},
            "the dead child was replaced",
        )
        assert second != first
        assert "worker_died" in supervisor.text
        assert {one.worker for one in at.workers()} == {"w-1", "w-2"}
        receipt = at.client.submit("quick:1", "hello", agent="quick")
        assert at.client.wait("quick:1", receipt.submission_id).text == "done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_every_child(url: str, tmp_path: Path, number: signal.Signals) -> None:
    with fleet(url, tmp_path) as at:
        supervisor = at.start("--processes", "2")
        children = at.wait_for_workers(2)
        at.client.submit("slow:1", "hello", agent="slow")
        at.wait_for_holder("slow:1")
        supervisor.send(number)
        assert supervisor.popen.wait(20) == 0
        assert at.client.session("slow:1").status == "ready"
        assert at.workers() == ()
        assert not any(alive(one.pid) for one in children)


def test_a_second_signal_hands_off_at_once(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path) as at:
        supervisor = at.start("--processes", "2", CHANGEOVER_DRAIN_GRACE="10m")
        at.wait_for_workers(2)
        at.client.submit("slow:1", "hello", agent="slow")
        at.wait_for_holder("slow:1")
        supervisor.send(signal.SIGTERM)
        wait_until(lambda: supervisor.text.count("drain_started") == 2, "both children drain")
        assert supervisor.popen.poll() is None
        supervisor.send(signal.SIGTERM)
        assert supervisor.popen.wait(20) == 75
        assert at.client.session("slow:1").status == "ready"


def test_quit_hands_off_at_once(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path) as at:
        worker = at.start(CHANGEOVER_DRAIN_GRACE="10m")
        at.wait_for_workers(1)
        at.client.submit("slow:1", "hello", agent="slow")
        at.wait_for_holder("slow:1")
        worker.send(signal.SIGQUIT)
        assert worker.popen.wait(20) == 75
        assert at.client.session("slow:1").status == "ready"


def test_a_worker_that_is_told_to_shows_its_stacks_and_tasks_and_goes_on(
    url: str, tmp_path: Path
) -> None:
    with fleet(url, tmp_path) as at:
        worker = at.start()
        at.wait_for_workers(1)
        worker.send(signal.SIGUSR2)
        wait_until(lambda: "Stack for <Task" in worker.text, "the tasks are shown")
        assert "lease-keeper" in worker.text or "Thread 0x" in worker.text
        receipt = at.client.submit("quick:1", "hello", agent="quick")
        assert at.client.wait("quick:1", receipt.submission_id).text == "done"


def test_a_worker_that_is_told_to_claims_nothing_more(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path) as at:
        worker = at.start()
        at.wait_for_workers(1)
        at.client.submit("slow:1", "hello", agent="slow")
        at.wait_for_holder("slow:1")
        worker.send(signal.SIGUSR1)
        wait_until(lambda: "paused" in worker.text, "it is paused")
        at.client.submit("quick:1", "hello", agent="quick")
        worker.send(signal.SIGTERM)
        assert worker.popen.wait(20) == 0
        assert at.client.session("quick:1").status == "ready"
        assert at.client.session("quick:1").fence == 0


def test_children_of_a_killed_supervisor_drain(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path) as at:
        supervisor = at.start("--processes", "2")
        children = at.wait_for_workers(2)
        supervisor.kill()
        wait_until(lambda: at.workers() == (), "the children drained")
        wait_until(lambda: not any(alive(one.pid) for one in children), "the children are gone")


def test_a_worker_whose_supervisor_died_before_it_looked_drains(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path) as at:
        gone = subprocess.Popen(["true"])
        gone.wait(10)
        worker = at.start("--incarnation", "w:00000001", "--parent", str(gone.pid))
        assert worker.popen.wait(20) == 0
        assert "the supervisor is gone" in worker.text


async def test_a_child_that_is_born_while_the_supervisor_quits_is_told_to_quit(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = asyncio.create_subprocess_exec

    async def quits_meanwhile(*command: Any, **named: Any) -> asyncio.subprocess.Process:
        supervisor.pass_on(signal.SIGQUIT)
        return await start(*command, **named)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", quits_meanwhile)
    command = ("sh", "-c", "exec sleep 60")
    settings, (log, _) = own_fleet(processes=2), capture()
    supervisor = Supervisor(command, settings, url, name="w", burst=False, log=log)
    assert await supervisor.run() == 75


def test_a_replacement_that_will_not_start_leaves_the_others_at_work(
    url: str, tmp_path: Path
) -> None:
    app = tmp_path / "edited_app.py"
    app.write_text("from tests.support.supervised_app import app\n")
    with fleet(url, tmp_path) as at:
        path = {"PYTHONPATH": str(tmp_path)}
        supervisor = at.start("--processes", "2", "--name", "w", app="edited_app:app", **path)
        dying, healthy = at.wait_for_workers(2)
        app.write_text("raise ValueError('edited badly')\n")
        os.kill(dying.pid, signal.SIGKILL)
        wait_until(lambda: supervisor.text.count("edited badly") >= 2, "it was tried again")
        assert '"exit": 78' in supervisor.text
        assert at.workers() == (healthy,) or at.workers()[0].incarnation == healthy.incarnation
        receipt = at.client.submit("quick:1", "hello", agent="quick")
        assert at.client.wait("quick:1", receipt.submission_id).text == "done"
        app.write_text("from tests.support.supervised_app import app  # mended\n")
        at.wait_for_workers(2)
        supervisor.send(signal.SIGTERM)
        assert supervisor.popen.wait(20) == 0


def test_a_lifespan_that_fails_is_no_reason_to_restart(url: str, tmp_path: Path) -> None:
    (tmp_path / "needy_app.py").write_text(
        "from contextlib import asynccontextmanager\n"
        "from changeover_worker import App, Agent\n"
        "from tests.support.supervised_app import app as other\n"
        "@asynccontextmanager\n"
        "async def lifespan(app):\n"
        "    raise OSError('no database')\n"
        "    yield\n"
        "models = {'quick': other.model('quick')}\n"
        "app = App(agents=[Agent('quick', model='quick')], models=models, lifespan=lifespan)\n"
    )
    with fleet(url, tmp_path) as at:
        worker = at.start(app="needy_app:app", PYTHONPATH=str(tmp_path))
        assert worker.popen.wait(20) == 78
        assert "the app's lifespan failed: OSError: no database" in worker.text
        assert f"({tmp_path / 'needy_app.py'}:6)" in worker.text
        assert "Traceback" in worker.text and '"code": "app_failed"' in worker.text
        assert "bug" not in worker.text
        assert at.workers() == ()


def test_a_bug_ends_a_worker_with_the_path_of_a_dump(url: str, tmp_path: Path) -> None:
    (tmp_path / "buggy_app.py").write_text(
        "from changeover_worker._process.sweep import Sweep\n"
        "from tests.support.supervised_app import app\n"
        "async def breaks(self):\n"
        "    raise RuntimeError('a mistake')\n"
        "Sweep.run = breaks\n"
    )
    with fleet(url, tmp_path) as at:
        path = {"PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path)}
        worker = at.start(app="buggy_app:app", **path)
        assert worker.popen.wait(20) == 70
        said = worker.text.splitlines()[-1]
        assert said.startswith("changeover worker: this is a bug: RuntimeError; ")
        dump = Path(said.rpartition(" ")[2])
        assert dump.parent == tmp_path
        assert "RuntimeError: a mistake" in dump.read_text("utf-8")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_an_app_that_does_not_import_is_no_reason_to_restart(
    url: str, tmp_path: Path, processes: str
) -> None:
    with fleet(url, tmp_path) as at:
        worker = at.start("--processes", processes, app="tests.support.no_such_module:app")
        assert worker.popen.wait(20) == 78
        assert "no app at 'tests.support.no_such_module:app'" in worker.text
        assert at.workers() == ()


def test_a_misspelt_variable_is_told(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path) as at:
        worker = at.start(CHANGEOVER_CONCURENCY="7")
        at.wait_for_workers(1)
        assert '"code": "unknown_setting", "name": "CHANGEOVER_CONCURENCY"' in worker.text
        assert "is CHANGEOVER_CONCURRENCY meant?" in worker.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--redis", "http://example.org"), "Redis URL"),
        (("--concurrency", "0"), "CHANGEOVER_CONCURRENCY"),
        (("--name", "a b"), "worker"),
        (("--name", "w" * 64, "--processes", "2"), "worker"),
        (("--queue", "a b"), "CHANGEOVER_QUEUES"),
    ],
)
def test_a_wrong_option_is_named(
    url: str, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    with fleet(url, tmp_path) as at:
        worker = at.start(*options)
        assert worker.popen.wait(20) == 78
        assert said in worker.text
        assert "Traceback" not in worker.text
        assert at.workers() == ()


def test_another_number_of_partitions_is_refused(url: str, tmp_path: Path) -> None:
    with fleet(url, tmp_path) as at:
        at.client.submit("quick:1", "hello", agent="quick")
        worker = at.start(CHANGEOVER_PARTITIONS="5")
        assert worker.popen.wait(20) == 78
        assert "has 4 partitions, you asked for 5" in worker.text
        assert at.client.session("quick:1").status == "ready"


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_server_that_is_away_is_no_misconfiguration(
    url: str, tmp_path: Path, processes: str
) -> None:
    with fleet(url, tmp_path) as at:
        nowhere = f"redis://127.0.0.1:{free_port()}/0"
        worker = at.start("--processes", processes, CHANGEOVER_REDIS_URL=nowhere)
        assert worker.popen.wait(20) == 5
        assert "no Redis answers at" in worker.text


@pytest.mark.parametrize(("agent", "code"), [("quick", 0), ("broken", 1)])
def test_a_burst_says_whether_a_turn_failed(
    url: str, tmp_path: Path, agent: str, code: int
) -> None:
    with fleet(url, tmp_path) as at:
        at.client.submit("one", "hello", agent=agent)
        worker = at.start("--burst")
        assert worker.popen.wait(20) == code
        assert at.client.session("one").status == "idle"


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return found.stdout.strip() not in ("", "Z")
