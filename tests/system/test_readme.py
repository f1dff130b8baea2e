"""What the README shows is what runs: its files, run as it says."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_server import ModelServer, Reply, Request, sse
from tests.support.processes import COMMAND, ROOT, Processes, processes
from tests.support.servers import running_server

QUICKSTART = ROOT / "examples" / "quickstart"
ANSWER = "22 °C and sunny in Oslo."
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "weather",
    "arguments": '{"city": "Oslo"}',
}
SAID = {
    "type": "message",
    "id": "m",
    "role": "assistant",
    "content": [{"type": "output_text", "text": ANSWER, "annotations": []}],
}


def weather_report(request: Request) -> Reply:
    """A provider that asks for the weather, then says what the tool said."""
    known = any(item.get("type") == "function_call_output" for item in request.body["input"])
    item: dict[str, Any] = SAID if known else CALL
    opened = {**item, "content": []} if known else {**item, "arguments": ""}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": opened}
    ]
    if known:
        events += [
            {"type": "response.output_text.delta", "output_index": 0, "item_id": "m", "delta": word}
            for word in re.findall(r"\S+\s*", ANSWER)
        ]
    events.append({"type": "response.output_item.done", "output_index": 0, "item": item})
    response = {"id": "r", "status": "completed", "output": [item], "usage": None}
    events.append({"type": "response.completed", "response": response})
    return Reply(sse(*events))


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Processes]:
    """A server, a provider, and a worker of the README's bot."""
    provider = ModelServer(answer=weather_report)
    await provider.start()
    with running_server() as url:
        environment = {
            "CHANGEOVER_REDIS_URL": url,
            "OPENAI_BASE_URL": provider.url,
            "OPENAI_API_KEY": "none",
            "PYTHONPATH": str(QUICKSTART),
        }
        with processes(tmp_path, environment) as running:
            running.start("worker", COMMAND, "worker", "bot:app", "-q", "assistant")
            yield running
    await provider.aclose()


async def output(running: Processes, *args: str) -> str:
    """What a program prints; it must end well."""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        *args,
        env={**os.environ, **running.environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(40):
        out, err = await program.communicate()
    workers = "\n".join(process.text for process in running.started)
    assert program.returncode == 0, err.decode() + workers
    return out.decode()


@pytest.mark.parametrize("name", ["bot.py", "ask.py"])
def test_the_readme_shows_the_files_that_are_run(name: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    assert (QUICKSTART / name).read_text("utf-8") in blocks


async def test_the_readmes_question_is_answered_by_the_readmes_bot(fleet: Processes) -> None:
    assert await output(fleet, str(QUICKSTART / "ask.py")) == ANSWER


async def test_a_fan_out_prints_each_outcome_and_repeats_nothing(
    fleet: Processes, tmp_path: Path
) -> None:
    items = tmp_path / "items.txt"
    items.write_text("a\nb\nc\n")
    program = str(ROOT / "examples" / "fan_out.py")
    first = await output(fleet, program, str(items))
    again = await output(fleet, program, str(items))
    assert sorted(first.splitlines()) == sorted(again.splitlines())
    assert sorted(line.split()[0] for line in first.splitlines()) == [
        f"triage:{n}" for n in range(3)
    ]
