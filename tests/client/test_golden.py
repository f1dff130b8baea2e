"""What commands print, word for word: tests/golden/cli_*.txt are transcripts of real commands on a
real server with a real worker. `make golden` writes them anew."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from changeover import SyncClient
from changeover.cli import main
from tests.support.golden import compare
from tests.support.processes import Process, Processes, processes, wait_until
from tests.support.servers import running_server

APP = "tests.support.golden_app:app"
ORDER = "Please look at order 7"
WORKER = ("-m", "changeover_worker", APP, "--name", "a", "--build", "1.5.0")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server("valkey") as server:
        yield server


class Transcript:
    """Runs commands and writes down what they say."""

    def __init__(
        self, url: str, capsys: pytest.CaptureFixture[str], started: Processes, prefix: str
    ) -> None:
        self.text = ""
        self._url = url
        self._capsys = capsys
        self._started = started
        self._prefix = prefix

    def run(self, *args: str) -> None:
        """One command: its line, its result, what it tells beside that, its exit code."""
        code = main(args)
        out, err = self._capsys.readouterr()
        shown = " ".join(f"'{one}'" if " " in one else one for one in args)
        self.text += f"$ changeover {shown}\n{out}"
        self.text += "".join(f"! {line}\n" for line in err.splitlines())
        self.text += f"(exit {code})\n\n" if code else "\n"

    def worker(self) -> Process:
        """A worker that is ready."""
        process = self._started.python("worker", *WORKER)
        wait_until(lambda: "worker_ready" in process.text, "the worker's start")
        return process

    def client(self) -> SyncClient:
        """A client of the same fleet."""
        return SyncClient(self._url)

    def wait(self, session: str, status: str) -> None:
        """Until a session stands so."""
        with self.client() as client:
            wait_until(lambda: client.session(session).status == status, f"{session} {status}")


@pytest.fixture
def transcript(
    url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Transcript]:
    name = request.node.name.removeprefix("test_")
    own = {
        "CHANGEOVER_REDIS_URL": url,
        "CHANGEOVER_PREFIX": name[:8].replace("_", "-"),
        "CHANGEOVER_PARTITIONS": "4",
        "TZ": "UTC",
    }
    for key, value in own.items():
        monkeypatch.setenv(key, value)
    with processes(tmp_path_factory.mktemp(name), own) as started:
        found = Transcript(url, capsys, started, own["CHANGEOVER_PREFIX"])
        yield found


def test_talking(transcript: Transcript) -> None:
    it = transcript
    it.worker()
    it.run("submit", "web:9", ORDER, "--agent", "support", "--id", "m1", "--wait")
    it.run("submit", "web:9", ORDER, "--agent", "support", "--id", "m1")
    it.run("submit", "web:9", "Something else", "--id", "m1")
    it.run("submit", "web:8", "hello", "--agent", "broken", "--id", "m2", "--wait")
    it.run(
        "submit", "web:7", "later", "--agent", "support", "--id", "m3", "--delay", "1h", "--json"
    )
    it.run("follow", "web:9", "--from", "start", "--until", "m1")
    it.run("follow", "web:9", "--from", "start", "--until", "m1", "--events")
    it.run("cancel", "web:7", "m3")
    it.run("cancel", "web:7", "m3")
    it.run("submit", "slow:1", "go on", "--agent", "slow", "--id", "m4")
    it.wait("slow:1", "running")
    it.run("interrupt", "slow:1")
    it.wait("slow:1", "idle")
    it.run("interrupt", "slow:1")
    it.run("submit", "web:9", "", "--id", "m5")
    compare("cli_talking.txt", it.text)


def test_looking(transcript: Transcript) -> None:
    it = transcript
    worker = it.worker()
    it.run("workers")
    it.run("workers", "--json")
    it.run("queues")
    it.run("submit", "web:9", ORDER, "--agent", "support", "--id", "m1", "--wait")
    it.run("submit", "late:1", "later", "--agent", "support", "--id", "m2", "--delay", "2h")
    it.run("submit", "triage:77", "hello", "--agent", "triage", "--id", "m3")
    it.wait("web:9", "idle")
    it.run("sessions")
    it.run("sessions", "--status", "ready", "--json")
    it.run("show", "web:9")
    for part in ("--events", "--transcript", "--turns", "--inbox"):
        it.run("show", "web:9", part)
    it.run("show", "web:9", "--turns", "--json")
    for session in ("web:9", "late:1", "triage:77", "nobody:0"):
        it.run("explain", session)
    it.run("explain", "triage:77", "--json")
    worker.send(signal.SIGTERM)
    worker.popen.wait(20)
    it.run("explain", "triage:77")
    compare("cli_looking.txt", it.text)


def test_operating(transcript: Transcript) -> None:
    it = transcript
    it.run("submit", "web:9", ORDER, "--agent", "support", "--id", "m1")
    it.run("pause", "support", "--reason", "a deploy", "--by", "ann")
    it.run("explain", "web:9")
    it.run("resume", "support")
    it.run("quarantine", "web:9", "--reason", "it hurts", "--by", "ann")
    it.run("quarantine")
    it.run("quarantine", "--json")
    it.run("explain", "web:9")
    it.run("redrive", "web:9", "--yes")
    it.run("redrive", "web:9", "--yes")
    it.run("rollback", "web:9", "t_1")
    it.run("close", "web:9", "--yes")
    it.run("delete", "web:9", "--yes")
    it.run("submit", "web:9", "again", "--id", "m1")
    worker = it.worker()
    it.run("drain", "a", "--wait", "--yes")
    assert worker.popen.wait(20) == 0
    it.run("drain", "a", "--yes")
    it.run("workers")
    it.run("evict", "a", "--yes")
    compare("cli_operating.txt", it.text)


def test_keeping(transcript: Transcript) -> None:
    it = transcript
    it.run("submit", "web:9", ORDER, "--agent", "support", "--id", "m1")
    it.run("acl", "producer")
    it.run("acl", "operator", "--json")
    it.run("purge", "--dry-run")
    it.run("schedule", "weekly", "report:1", "Write the report", "--cron", "0 9 * * 1")
    it.run("schedules")
    it.run("unschedule", "weekly")
    it.run("unschedule", "weekly")
    compare("cli_keeping.txt", it.text)
