"""A worker that runs one session and ends its process, with exit code 87, at a chosen moment.

    python -m tests.support.exiting_worker URL MOMENT DETAIL ANSWER [TOOL]

Without a detail it ends at the first such moment. With a tool's name the model asks for that tool
before it answers, under the id `tool-1`.
"""

from __future__ import annotations

import asyncio
import os
import sys

from changeover_shared._store.executor import Executor
from changeover_worker._agent import Agent
from changeover_worker._app import App
from changeover_worker._session import signals
from changeover_worker._session.signals import Moment
from changeover_worker._tools.tool import tool
from changeover_worker.testing import ScriptedModel, call, say
from tests.support.fleet import small_settings, stores_on
from tests.support.holding import Bench
from tests.support.processes import ROOT

EXIT = 87
INCARNATION = "w:000000ff"


async def exits(url: str, moment: str, detail: str, answer: str, *tool_name: str) -> None:
    """Have another process run the session until it exits at the moment."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, url, moment, detail, answer, *tool_name, cwd=ROOT
    )
    assert await child.wait() == EXIT


def app(answer: str, tool_name: str = "") -> App:
    """What the worker runs."""

    @tool(name=tool_name or "unused", effect="pure")
    async def asked(value: str = "") -> str:
        """Answer at once."""
        return "done"

    script = [call(tool_name, call_id="tool-1", value="hi")] if tool_name else []
    model = ScriptedModel(*script, say(answer), chunk=3)
    return App(agents=[Agent("bot", model="m", tools=[asked])], models={"m": model})


async def main(url: str, moment: str, detail: str, answer: str, tool_name: str = "") -> None:
    """Claim the session and run it; it does not come back."""

    async def listener(reached: Moment, session_id: str, found: str) -> None:
        if reached == moment and detail in ("", found):
            os._exit(EXIT)

    signals.listen(listener)
    settings = small_settings()
    async with stores_on(await Executor.connect(url), settings) as stores:
        await Bench(stores, settings).run(app(answer, tool_name), INCARNATION)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
