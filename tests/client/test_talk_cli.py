"""`changeover cancel` and `interrupt` beside a turn that runs: what they say, and exit with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from changeover import Ending, SyncClient
from changeover.cli import main
from tests.support.processes import processes, wait_until
from tests.support.servers import running_server

Told = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a worker."""
    with (
        running_server() as server,
        processes(tmp_path_factory.mktemp("worker"), {"CHANGEOVER_REDIS_URL": server}) as running,
    ):
        running.python("worker", "-m", "changeover_worker", "tests.support.scripted_app:app")
        yield server


@pytest.fixture
def told(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Told:
    """Runs a command; its exit code and its stdout."""
    monkeypatch.setenv("CHANGEOVER_REDIS_URL", url)

    def run(*args: str) -> tuple[int, str]:
        code = main(args)
        return code, capsys.readouterr().out

    return run


@pytest.fixture
def running(url: str, request: pytest.FixtureRequest) -> Iterator[tuple[SyncClient, str]]:
    """A session whose turn `t_1` runs for a minute, and answers `m1`; `m2` waits."""
    session = f"talk:{request.node.name}"
    with SyncClient(url) as client:
        client.submit(session, "one", id="m1", agent="slow")
        client.submit(session, "two", id="m2", agent="slow")
        wait_until(lambda: client.view(session).turn is not None, "the turn has begun")
        yield client, session
        client.cancel(session, "m2")
        client.interrupt(session)


def test_what_waits_is_taken_back_and_what_runs_or_has_ended_is_not(
    told: Told, running: tuple[SyncClient, str]
) -> None:
    client, session = running
    assert told("cancel", session, "m1") == (
        4,
        f"m1 runs already, in t_1; left as it is: changeover interrupt {session} --turn t_1\n",
    )
    assert told("cancel", session, "m2") == (0, "m2 cancelled\n")
    again = told("cancel", session, "m2")
    assert again == (4, "m2 has ended already: cancelled; nothing was changed\n")
    assert told("cancel", session, "m9") == (3, "m9 is unknown here; nothing was changed\n")
    code, out = told("cancel", session, "m1", "--json")
    assert (code, json.loads(out)["answer"], json.loads(out)["turn_id"]) == (
        4, "already_running", "t_1",
    )  # fmt: skip
    assert client.view(session).turn is not None


def test_an_interrupt_ends_the_turn_that_it_means_and_no_other(
    told: Told, running: tuple[SyncClient, str]
) -> None:
    client, session = running
    assert told("interrupt", session, "--turn", "t_9") == (
        4, "another turn runs: t_1; nothing was changed\n",
    )  # fmt: skip
    told("cancel", session, "m2")
    assert told("interrupt", session, "--turn", "t_1", "--reason", "enough") == (
        0, "interrupted: t_1 ends as soon as its worker sees it\n",
    )  # fmt: skip
    assert client.wait(session, "m1", timeout="20s").ending is Ending.ABORTED
    assert told("interrupt", session) == (0, "no turn runs; nothing was changed\n")
    assert told("interrupt", session, "--turn", "t_1") == (0, "no turn runs; nothing was changed\n")
