"""RQ's job and producer."""

from __future__ import annotations

import os
import time

from marks import JOB_S, mark, produce
from redis import Redis
from rq import Queue, Retry


def work(job: str) -> None:
    mark("start", job)
    time.sleep(JOB_S)
    mark("end", job)


def main() -> None:
    queue = Queue(connection=Redis.from_url(os.environ["KILLS_URL"]))
    retry = Retry(max=10) if os.environ.get("KILLS_RETRY") else None
    produce(lambda job: queue.enqueue(work, job, retry=retry, job_timeout=30))
