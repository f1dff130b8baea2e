"""`changeover dev`: a turn goes on in the new code, and a broken file is waited out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from changeover import SyncClient, TurnCompleted, WorkerChanged
from tests.support.processes import COMMAND, wait_until

BOT = """
from changeover_worker import Agent, App, AssistantMessage, tool
from changeover_worker.testing import ScriptedModel, call, say

def choose(request):
    asked = any(isinstance(item, AssistantMessage) for item in request.items)
    return say("{code} code answers") if asked else call("look")

@tool(effect="pure", timeout="30s")
async def look() -> str:
    \"\"\"Look, until somebody says that there is enough to see.\"\"\"
    import asyncio, pathlib
    while not pathlib.Path("seen").exists():
        await asyncio.sleep(0.01)
    return "seen"

app = App(models={{"m": ScriptedModel.by(choose)}},
          agents=[Agent("assistant", model="m", tools=[look])])
"""


class Bot:
    """A directory with an app, and `changeover dev` in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, code: str) -> None:
        """Write the app; `code` is what it answers with."""
        (self.directory / "bot.py").write_text(BOT.format(code=code))

    @property
    def url(self) -> str:
        return f"embedded://{self.directory / '.changeover'}"


@pytest.fixture
def bot(tmp_path: Path) -> Bot:
    made = Bot(tmp_path)
    made.write("old")
    return made


@contextmanager
def dev(
    bot: Bot, *options: str, app: str = "bot:app"
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    log = bot.directory / "dev.log"
    apart = {"OPENAI_API_KEY", "PYTHONDONTWRITEBYTECODE"}
    environment = {name: value for name, value in os.environ.items() if name not in apart}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [COMMAND, "dev", app, *options],
            cwd=bot.directory,
            stdout=out,
            stderr=out,
            env={**environment, "CHANGEOVER_LOG_FORMAT": "text"},
        )
    try:
        yield process, log
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(40)


def test_a_turn_that_runs_while_its_app_is_edited_goes_on_in_the_new_code(bot: Bot) -> None:
    with dev(bot) as (process, log), SyncClient(bot.url) as client:
        wait_until(lambda: "worker_ready" in log.read_text(), "the first worker")
        receipt = client.submit("s", "look around")
        wait_until(lambda: client.session("s").revision >= 2, "the tool's start")
        source = bot.directory / "bot.py"
        moment = source.stat().st_mtime_ns + 1000
        bot.write("new")
        # As quick an edit as can be: the same second, the same size.
        os.utime(source, ns=(moment, moment))
        wait_until(lambda: log.read_text().count("worker_ready") == 2, "the second worker")
        (bot.directory / "seen").touch()
        outcome = client.wait("s", receipt.submission_id, timeout="30s")
        assert (outcome.ending, outcome.text) == ("completed", "new code answers")
        events = list(client.follow("s", after="start", until=receipt.submission_id))
        assert [e.reason for e in events if isinstance(e, WorkerChanged)] == ["handed_off"]
        assert isinstance(events[-1], TurnCompleted)
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 0
    assert "bot.py changed: the worker hands off to a new one" in log.read_text()


def test_an_app_that_does_not_import_is_shown_and_its_next_change_waited_for(bot: Bot) -> None:
    (bot.directory / "bot.py").write_text("import nothing_of_that_name\n")
    with dev(bot) as (_, log), SyncClient(bot.url) as client:
        wait_until(lambda: "waiting for a change" in log.read_text(), "the first import")
        assert "No module named 'nothing_of_that_name'" in log.read_text()
        (bot.directory / "seen").touch()
        bot.write("mended")
        receipt = client.submit("s", "look around")
        outcome = client.wait("s", receipt.submission_id, timeout="30s")
        assert outcome.text == "mended code answers"


KEYLESS = """
from changeover_worker import Agent, App

app = App(models={"m": "openai:gpt-5-mini"}, agents=[Agent("assistant", model="m")])
"""


@pytest.mark.parametrize(
    ("app", "text"),
    [
        ("nowhere:app", "No module named 'nowhere'"),
        ("bot", "it is not of the form module:attribute"),
        ("bot:none", "module 'bot' has no attribute 'none'"),
        ("bot:app", "set OPENAI_API_KEY"),
    ],
)
def test_what_no_edit_of_the_app_mends_ends_it_at_the_first_start(
    bot: Bot, app: str, text: str
) -> None:
    (bot.directory / "bot.py").write_text(KEYLESS)
    with dev(bot, app=app) as (process, log):
        assert process.wait(30) == 78
    assert text in log.read_text()
    assert "waiting for a change" not in log.read_text()


def test_an_edit_that_asks_for_a_key_leaves_it_waiting_and_is_mended_by_the_next(bot: Bot) -> None:
    with dev(bot) as (process, log):
        wait_until(lambda: "worker_ready" in log.read_text(), "the first worker")
        (bot.directory / "bot.py").write_text(KEYLESS)
        wait_until(lambda: "needs a restart of changeover dev" in log.read_text(), "the refusal")
        bot.write("mended")
        wait_until(lambda: log.read_text().count("worker_ready") == 2, "the second worker")
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 0


def test_without_reload_an_app_that_does_not_import_ends_it(bot: Bot) -> None:
    (bot.directory / "bot.py").write_text("app = 1 / 0\n")
    with dev(bot, "--no-reload") as (process, log):
        assert process.wait(30) == 78
    assert "ZeroDivisionError" in log.read_text()


def test_a_worker_that_is_killed_is_buried_and_replaced(bot: Bot) -> None:
    with dev(bot) as (_, log), SyncClient(bot.url) as client:
        wait_until(lambda: "worker_ready" in log.read_text(), "the first worker")
        receipt = client.submit("s", "look around")
        wait_until(lambda: client.session("s").revision >= 2, "the tool's start")
        (line,) = [line for line in log.read_text().splitlines() if "worker of bot:app" in line]
        os.kill(int(line.rpartition(" ")[2]), signal.SIGKILL)
        (bot.directory / "seen").touch()
        outcome = client.wait("s", receipt.submission_id, timeout="30s")
        assert (outcome.text, outcome.takeovers) == ("old code answers", 1)


def test_every_line_is_json_when_json_is_asked_for(bot: Bot) -> None:
    with dev(bot, "--json") as (process, log):
        wait_until(lambda: "worker_ready" in log.read_text(), "the worker")
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 0
    told = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"dev", "worker_ready"} <= {line["event"] for line in told}
