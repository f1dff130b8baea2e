"""`changeover top` on a terminal and without one."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from changeover import Glance, SyncClient
from tests.support.nodes import Node, running_node
from tests.support.processes import COMMAND, ROOT, wait_until
from tests.support.terminal import Terminal, on_terminal

pytestmark = pytest.mark.timeout(120)

TOP = (COMMAND, "top")
RESTORED = ("\x1b[?1049l", "\x1b[?25h")
"""Back to what the terminal showed before, and the cursor with it."""


@pytest.fixture
def server() -> Iterator[Node]:
    with running_node(args=["--appendonly", "yes"]) as found:
        with SyncClient(found.url) as client:
            client.submit("web:1", "hello", queue="chat")
        yield found


@contextmanager
def watching(server: Node, *options: str) -> Iterator[Terminal]:
    """It runs and shows the queue."""
    command = (*TOP, "--redis", server.url, "--interval", "100ms", *options)
    with on_terminal(*command, environment={"NO_COLOR": "1"}) as terminal:
        wait_until(lambda: shows(terminal, "chat"), "a first look")
        yield terminal


def shows(terminal: Terminal, text: str) -> bool:
    return any(text in line for line in terminal.screen)


def ended(terminal: Terminal) -> int:
    code = terminal.process.wait(20)
    wait_until(lambda: all(one in terminal.text for one in RESTORED), "the terminal is restored")
    assert terminal.attributes() == terminal.before
    assert "Traceback" not in terminal.text
    return code


def test_q_quits_and_the_terminal_is_as_it_was(server: Node) -> None:
    with watching(server) as terminal:
        assert terminal.attributes() != terminal.before
        terminal.press("xq")
        assert ended(terminal) == 0


def test_ctrl_c_quits_and_the_terminal_is_as_it_was(server: Node) -> None:
    with watching(server) as terminal:
        terminal.press("\x03")
        assert ended(terminal) == 130


def test_a_process_that_is_told_to_end_leaves_the_terminal_as_it_was(server: Node) -> None:
    with watching(server) as terminal:
        terminal.process.send_signal(signal.SIGTERM)
        assert ended(terminal) == 0


def test_it_fits_into_a_terminal_that_changes_its_size(server: Node) -> None:
    with watching(server) as terminal:
        assert shows(terminal, "TAKEOVERS/MIN")
        terminal.resize(44, 12)
        wait_until(
            lambda: len(terminal.screen) == 12 and not shows(terminal, "TAKEOVERS/MIN"),
            "it is drawn smaller",
        )
        assert max(map(len, terminal.screen)) <= 44
        terminal.press("q")
        assert ended(terminal) == 0


def test_it_says_that_redis_is_away_and_goes_on_when_it_is_back(server: Node) -> None:
    with watching(server) as terminal:
        server.kill()
        wait_until(lambda: shows(terminal, "Redis does not answer"), "it says so")
        assert shows(terminal, "chat")
        server.start_again()
        wait_until(
            lambda: shows(terminal, "chat") and not shows(terminal, "Redis does not answer"),
            "it goes on",
        )
        terminal.press("q")
        assert ended(terminal) == 0


def test_q_quits_while_redis_hangs(server: Node) -> None:
    with watching(server) as terminal, server.frozen():
        terminal.press("q")
        assert ended(terminal) == 0


def test_without_a_terminal_it_looks_once(server: Node) -> None:
    told = subprocess.run(
        [*TOP, "--redis", server.url], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (told.returncode, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert lines[0].startswith("changeover top · fleet co · ")
    (chat,) = [line.split() for line in lines if line.startswith("chat ")]
    assert chat[:3] == ["chat", "open", "1"]
    assert "\x1b" not in told.stdout


def test_json_is_one_object_a_look(server: Node) -> None:
    command = [*TOP, "--redis", server.url, "--json"]
    once = subprocess.run([*command, "--once"], cwd=ROOT, capture_output=True, text=True)
    (line,) = once.stdout.splitlines()
    assert set(json.loads(line)) == set(Glance.model_fields)
    with subprocess.Popen(
        [*command, "--interval", "50ms"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert [one["queues"][0]["queue"] for one in looks] == ["chat"] * 3
    assert looks[0]["at_ms"] < looks[2]["at_ms"]
    assert process.returncode == 130


def test_a_server_that_is_not_there_ends_it_at_once() -> None:
    command = [*TOP, "--redis", "redis://127.0.0.1:1/0"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert told.returncode == 5
    assert "Traceback" not in told.stderr
