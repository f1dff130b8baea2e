"""Celery's app, task and producer."""

from __future__ import annotations

import os
import time

from celery import Celery
from marks import JOB_S, mark, produce

_LATE = bool(os.environ.get("KILLS_LATE"))
app = Celery("celery_jobs", broker=os.environ["KILLS_URL"])
app.conf.broker_connection_retry_on_startup = True
if _LATE:
    app.conf.broker_transport_options = {"visibility_timeout": 30}
    app.conf.worker_prefetch_multiplier = 1


@app.task(name="work", acks_late=_LATE, reject_on_worker_lost=_LATE)  # type: ignore[untyped-decorator]
def work(job: str) -> None:
    mark("start", job)
    time.sleep(JOB_S)
    mark("end", job)


def main() -> None:
    produce(work.delay)
