"""`changeover sessions`, `workers`, `explain`: who runs, what waits, and why."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Annotated, Final, get_args

import typer

from changeover._client import Client
from changeover._explanation import Explanation
from changeover._operator import Operator
from changeover.cli._options import Json, Limit, Redis, Session, one_of
from changeover.cli._output import ago, clock, say, say_json, say_list, say_page, say_table
from changeover_shared._identifiers import worker_of
from changeover_shared._results import Page, SessionInfo, WorkerInfo
from changeover_shared._settings import read_settings
from changeover_shared._units import milliseconds, show_duration
from changeover_shared._words import SessionStatus

_STATUSES: Final = get_args(SessionStatus)


def sessions(
    status: Annotated[
        SessionStatus | None,
        typer.Option(
            "--status",
            parser=one_of(*_STATUSES),
            metavar="|".join(_STATUSES),
            help="Only those that stand so.",
        ),
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Only those of this queue.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Only those of this agent.")] = None,
    limit: Limit = 50,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Where the page before ended.")
    ] = None,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """List sessions, newest first."""

    async def read() -> Page[SessionInfo]:
        async with Client(redis) as client:
            return await client.sessions(
                agent=agent, queue=queue, status=status, cursor=cursor, limit=limit
            )

    page = asyncio.run(read())
    if as_json:
        say_list(page.items, page.next)
        return
    now_ms = round(time.time() * 1000)
    say_table(
        ("SESSION", "AGENT", "STATUS", "WAITING", "WORKER", "INBOX", "SEQ", "UPDATED"),
        [_session_row(info, now_ms) for info in page.items],
    )
    say_page(page, option="--cursor")


def workers(redis: Redis = None, as_json: Json = False) -> None:
    """List workers and what they hold."""

    async def read() -> tuple[WorkerInfo, ...]:
        async with Operator(redis) as operator:
            return await operator.workers()

    found = asyncio.run(read())
    if as_json:
        say_list(found)
        return
    now_ms = round(time.time() * 1000)
    lease_ms = milliseconds(read_settings().lease)
    say_table(
        ("WORKER", "BOOT", "BUILD", "STATE", "SESSIONS", "SLOTS", "QUEUES", "RENEWED", "HOST", ""),
        [_worker_row(info, now_ms, lease_ms) for info in found],
    )


def explain(session: Session, redis: Redis = None, as_json: Json = False) -> None:
    """Say why a session is, or is not, running, and what to do."""

    async def read() -> Explanation:
        async with Operator(redis) as operator:
            return await operator.explain(session)

    found = asyncio.run(read())
    if as_json:
        say_json(found)
        return
    say(f"{found.text}  [{found.code}]")
    if found.remedy is not None:
        say(f"  do       {found.remedy}")
    say(f"  facts    {facts_line(found)}")


def facts_line(found: Explanation) -> str:
    """The facts as people read them, without what the text has said already."""
    return " · ".join(
        _fact(name, value)
        for name, value in found.facts.items()
        if value != [] and not (name == "error" and str(value) in found.text)
    )


def _fact(name: str, value: object) -> str:
    """One fact as people read it; milliseconds become a time of the day, or a span."""
    if isinstance(value, int) and name in ("due_ms", "until_ms"):
        return f"{name.removesuffix('_ms')} {clock(value)}"
    if isinstance(value, int) and "_ms" in name:
        before, _, after = name.partition("_ms")
        span = show_duration(timedelta(milliseconds=value))
        return " ".join(part for part in (before, span, after.strip("_")) if part)
    if isinstance(value, list | tuple):
        return f"{name} {', '.join(map(str, value))}"
    return f"{name} {'-' if value is None else value}"


def _session_row(info: SessionInfo, now_ms: int) -> tuple[str, ...]:
    return (
        info.session_id,
        info.agent,
        info.status,
        _next_of(info.waiting),
        worker_of(info.worker) if info.worker else "-",
        str(info.inbox),
        str(info.seq),
        ago(now_ms - info.updated_at_ms),
    )


def _next_of(waiting: str | None) -> str:
    """What ends the waiting first; `show` has the others."""
    first, more, _ = (waiting or "-").partition(", ")
    return f"{first}, ..." if more else first


def _worker_row(info: WorkerInfo, now_ms: int, lease_ms: int) -> tuple[str, ...]:
    return (
        info.worker,
        info.incarnation.rpartition(":")[2],
        info.build or "-",
        info.state,
        str(info.sessions),
        str(info.slots),
        ", ".join(info.queues),
        ago(now_ms - info.renewed_at_ms),
        info.host,
        worker_note(info, now_ms, lease_ms),
    )


def worker_note(info: WorkerInfo, now_ms: int, lease_ms: int) -> str:
    """How far a worker that drains has come, and what becomes of one that is silent."""
    if info.state == "silent":
        left_ms = info.renewed_at_ms + lease_ms - now_ms
        span = show_duration(timedelta(milliseconds=left_ms)) if left_ms > 0 else ""
        when = f"takeover in {span}" if span else "its leases are over"
        return f"{when} · changeover evict {info.incarnation}"
    if info.draining is None:
        return ""
    done = info.draining
    return f"{done.sessions - done.left} of {done.sessions} handed off"
