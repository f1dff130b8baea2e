"""A worker that runs one session and ends its process, with exit code 87, at a chosen moment.

python -m tests.support.exiting_worker URL MOMENT DETAIL ANSWER
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
from changeover_worker.testing import ScriptedModel, say
from tests.support.fleet import small_settings, stores_on
from tests.support.holding import Bench

EXIT = 87
INCARNATION = "w:000000ff"


async def main(url: str, moment: str, detail: str, answer: str) -> None:
    """Claim the session and run it; it does not come back."""

    async def listener(reached: Moment, session_id: str, found: str) -> None:
        if reached == moment and found == detail:
            os._exit(EXIT)

    signals.listen(listener)
    app = App(agents=[Agent("bot", model="m")], models={"m": ScriptedModel(say(answer))})
    settings = small_settings()
    async with stores_on(await Executor.connect(url), settings) as stores:
        await Bench(stores, settings).run(app, INCARNATION)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
