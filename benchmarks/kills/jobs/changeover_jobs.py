"""changeover's app and producer: a job is the one turn of a session of its own."""

from __future__ import annotations

import asyncio
import os

from marks import JOB_S, mark, produce

from changeover import SyncClient
from changeover_worker import App, Turn

app = App()


@app.handler("jobs")
async def jobs(turn: Turn[None]) -> str:
    mark("start", turn.text)
    await asyncio.sleep(JOB_S)
    mark("end", turn.text)
    return "done"


def main() -> None:
    with SyncClient(os.environ["KILLS_URL"]) as client:
        produce(lambda job: client.submit(f"job:{job}", job, id=job, agent="jobs"))
