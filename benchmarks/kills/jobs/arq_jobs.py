"""arq's job, worker settings and producer."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, ClassVar

from arq import create_pool
from arq.connections import RedisSettings
from marks import JOB_S, mark

_REDIS = RedisSettings.from_dsn(os.environ["KILLS_URL"])


async def work(_: dict[str, Any], job: str) -> None:
    mark("start", job)
    await asyncio.sleep(JOB_S)
    mark("end", job)


class WorkerSettings:
    functions: ClassVar = [work]
    redis_settings = _REDIS
    max_tries = 10
    job_timeout = int(os.environ.get("KILLS_TIMEOUT", "300"))


async def _produce() -> None:
    pool = await create_pool(_REDIS)
    for line in sys.stdin:
        await pool.enqueue_job("work", line.strip())
        print(line.strip(), flush=True)


def main() -> None:
    asyncio.run(_produce())
