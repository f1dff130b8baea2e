"""`changeover quarantine` and `redrive`: what they print, in which shape, with which exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from changeover import SyncOperator
from changeover.cli import main
from tests.support.servers import flush, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture
def client(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SyncOperator]:
    flush(server)
    monkeypatch.setenv("CHANGEOVER_REDIS_URL", server)
    with SyncOperator(server) as found:
        for name in ("web:1", "web:2"):
            found.submit(name, "hello", id="m:1")
        yield found


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command; its exit code, its stdout and its stderr."""

    def run(*args: str) -> tuple[int, str, str]:
        code = main(args)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_a_session_is_stopped_listed_and_let_go_on(client: SyncOperator, told: Any) -> None:
    assert told("quarantine", "web:1", "--reason", "too loud", "--by", "ann") == (
        0, "web:1 quarantined: nobody runs it until: changeover redrive web:1\n", "",
    )  # fmt: skip
    again = told("quarantine", "web:1", "--reason", "too loud")
    assert again[:2] == (4, "web:1 is quarantined already; nothing was changed\n")
    code, out, _ = told("quarantine")
    header, row = out.splitlines()
    assert (code, header.split()) == (
        0, ["SESSION", "QUEUE", "SINCE", "ATTEMPTS", "LAST", "WORKER", "WHY"],
    )  # fmt: skip
    assert row.startswith("web:1") and row.endswith("stopped by ann: too loud")
    assert "stopped by ann: too loud" in told("show", "web:1")[1]
    assert "changeover redrive web:1" in told("explain", "web:1")[1]
    assert told("redrive", "web:1") == (
        0, "web:1 ready: attempts reset, transcript untouched\n", "",
    )  # fmt: skip
    assert told("redrive", "--all") == (0, "", "nothing is quarantined\n")


def test_what_is_given_up_is_named_and_asked_for(client: SyncOperator, told: Any) -> None:
    client.quarantine("web:1", reason="r")
    code, out, err = told("redrive", "web:1", "--drop-input")
    assert (code, out) == (2, "")
    assert "give --yes" in err
    assert client.session("web:1").status == "quarantined"
    would = "web:1 would go on, 1 submission dead-lettered (m:1); nothing was changed\n"
    assert told("redrive", "web:1", "--drop-input", "--dry-run") == (0, would, "")
    assert client.session("web:1").status == "quarantined"
    assert told("redrive", "web:1", "--drop-input", "--yes")[:2] == (
        0,
        "web:1 idle: attempts reset, 1 submission dead-lettered (m:1), transcript untouched\n",
    )


def test_one_line_each_and_the_gravest_exit_code(client: SyncOperator, told: Any) -> None:
    client.quarantine("web:1", reason="r")
    code, out, _ = told("redrive", "web:9", "web:2", "web:1")
    assert (code, out.splitlines()) == (
        4,
        [
            "web:9 is unknown here; nothing was changed",
            "web:2 is not quarantined: it is ready; nothing was changed",
            "web:1 ready: attempts reset, transcript untouched",
        ],
    )
    assert told("redrive", "web:9")[0] == 3


@pytest.mark.parametrize(
    "args",
    [
        ("redrive",),
        ("redrive", "web:1", "--all"),
        ("redrive", "--queue", "q", "--all"),
        ("quarantine", "--reason", "r"),
        ("quarantine", "web:1"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(
    client: SyncOperator, told: Any, args: tuple[str, ...]
) -> None:
    assert told(*args)[0] == 2


def test_the_json_has_one_shape_for_a_list_and_one_line_for_each_redrive(
    client: SyncOperator, told: Any
) -> None:
    stop = json.loads(told("quarantine", "web:1", "--reason", "r", "--json")[1])
    assert stop == {"session_id": "web:1", "quarantined": True}
    listed = json.loads(told("quarantine", "--json")[1])
    assert set(listed) == {"items", "next"}
    assert (listed["items"][0]["session_id"], listed["items"][0]["why"]) == ("web:1", "stopped: r")
    (line,) = told("redrive", "--all", "--json")[1].splitlines()
    assert json.loads(line) == {
        "session_id": "web:1", "answer": "redriven", "status": "ready", "dropped": [],
        "ended_turn": None, "error": None,
    }  # fmt: skip


def test_an_interrupt_and_a_cancel_say_what_will_happen(client: SyncOperator, told: Any) -> None:
    client.quarantine("web:1", reason="r")
    assert told("cancel", "web:1", "m:1")[:2] == (0, "m:1 cancelled\n")
    assert told("interrupt", "web:1")[1] == "no turn runs; nothing was changed\n"
