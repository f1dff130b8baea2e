"""Workers that run in the test's own process against a real server, and what they logged."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from changeover import Client, Receipt
from changeover_shared._identifiers import new_incarnation, new_nonce
from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Grant
from changeover_worker._app import App
from changeover_worker._process.worker import Worker, WorkerEnd
from tests.support.fleet import small_settings


def own_fleet(**given: Any) -> Settings:
    """Settings of a small fleet that no other test on the same server shares."""
    return small_settings(prefix=f"t{secrets.token_hex(4)}", **given)


def capture() -> tuple[FilteringBoundLogger, LogCapture]:
    """A log, and what is written to it."""
    entries = LogCapture()
    log: FilteringBoundLogger = structlog.wrap_logger(
        structlog.ReturnLogger(),
        processors=[entries],
        wrapper_class=structlog.make_filtering_bound_logger(0),
    ).bind()
    return log, entries


class Working:
    """One worker and what the test wants to know of it."""

    def __init__(self, worker: Worker, entries: LogCapture, task: asyncio.Task[WorkerEnd]) -> None:
        self.worker = worker
        self.task = task
        self._entries = entries

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The entries of one event, oldest first."""
        return [dict(one) for one in self._entries.entries if one["event"] == event]

    async def has_logged(self, event: str, times: int = 1) -> list[dict[str, Any]]:
        """Wait until an event was logged so often."""
        await eventually(lambda: len(self.logged(event)) >= times, f"{times} x {event}", self.task)
        return self.logged(event)


@asynccontextmanager
async def working(
    app: App, settings: Settings, url: str, *, name: str = "w", burst: bool = False
) -> AsyncIterator[Working]:
    """A worker that is ready; it is drained by force if the test leaves it running."""
    log, entries = capture()
    worker = Worker(app, settings, url, incarnation=new_incarnation(name), burst=burst, log=log)
    task = asyncio.create_task(worker.run())
    at_work = Working(worker, entries, task)
    try:
        if not burst:
            await at_work.has_logged("worker_ready")
        yield at_work
    finally:
        worker.force("the test is over")
        await asyncio.gather(task, return_exceptions=True)


async def eventually(
    holds: Callable[[], bool], description: str, task: asyncio.Task[Any] | None = None
) -> None:
    """Wait until something is so. Fails after 20 seconds, or when `task` ends before."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, f"never: {description}"
        if task is not None and task.done() and task.exception() is not None:
            raise AssertionError(f"ended before: {description}") from task.exception()
        await asyncio.sleep(0.01)


async def eventually_found(look: Callable[[], Coroutine[Any, Any, bool]], description: str) -> None:
    """As `eventually`, for what only Redis knows."""
    deadline = time.monotonic() + 20
    while not await look():
        assert time.monotonic() < deadline, f"never: {description}"
        await asyncio.sleep(0.02)


async def ask_many(client: Client, agent: str, count: int) -> list[Receipt]:
    """One message to each of `count` new sessions."""
    return [await client.submit(f"{agent}:{n}", "hello", agent=agent) for n in range(count)]


async def take(
    store: LeaseStore, session_id: str, incarnation: str, *, ttl_ms: int, solo: bool = False
) -> Grant:
    """Claim one session that is ready in the queue of its head."""
    head = await store.read_head(session_id)
    assert head is not None
    (answer,) = await store.claim(
        store.keys.of(session_id).partition,
        head.route,
        [session_id],
        incarnation=incarnation,
        nonce=new_nonce(),
        ttl_ms=ttl_ms,
        max_step_ms=600_000,
        solo=solo,
        not_after_ms=store.clock.now_ms() + 5_000,
    )
    assert isinstance(answer, Grant), answer
    return answer


async def die(store: LeaseStore, session_id: str, grant: Grant) -> None:
    """End a holder without a trace: its leases are evicted and its session is placed again."""
    await store.evict(grant.lease.incarnation)
    await store.reap(store.keys.of(session_id).partition, [session_id])


async def fail_often(store: LeaseStore, session_id: str, times: int) -> None:
    """Let a session outlive `times` holders that made no progress."""
    for _ in range(times):
        grant = await take(store, session_id, new_incarnation("x"), ttl_ms=30_000)
        await die(store, session_id, grant)
