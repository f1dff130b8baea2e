"""`changeover queues`, `pause`, `resume`: what waits where, and whether it may be taken."""

from __future__ import annotations

import asyncio
import getpass
import time
from contextlib import suppress
from datetime import timedelta
from typing import Annotated

import typer

from changeover._operator import Operator
from changeover._paused import paused_text
from changeover.cli._options import Json, Redis
from changeover.cli._output import note, say, say_json, say_list, say_table
from changeover_shared._results import QueueInfo
from changeover_shared._units import show_duration

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="A queue's name.", show_default=False)]


def queues(redis: Redis = None, as_json: Json = False) -> None:
    """List queues: what waits, what runs, what stands still."""

    async def read() -> tuple[QueueInfo, ...]:
        async with Operator(redis) as operator:
            return await operator.queues()

    found = asyncio.run(read())
    if as_json:
        say_list(found)
        return
    now_ms = round(time.time() * 1000)
    say_table(
        (
            "QUEUE",
            "STATE",
            "READY",
            "OLDEST",
            "RUNNING",
            "PARKED",
            "QUARANTINED",
            "WORKERS",
            "TURNS/MIN",
            "",
        ),
        [_row(info, now_ms) for info in found],
    )


def pause(
    queue: Queue,
    reason: Annotated[str, typer.Option("--reason", help="Why, for people.")] = "",
    by: Annotated[str | None, typer.Option("--by", help="Who; default: your login.")] = None,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Let no worker take sessions of a queue; running turns go on."""

    async def ask() -> None:
        async with Operator(redis) as operator:
            await operator.pause(queue, reason=reason, by=_login() if by is None else by)

    asyncio.run(ask())
    if as_json:
        say_json({"queue": queue, "state": "paused"})
        return
    say(f"{queue} is paused: turns that run go on, nothing else is taken")
    note(f"changeover resume {queue}")


def resume(queue: Queue, redis: Redis = None, as_json: Json = False) -> None:
    """Let workers take sessions of a paused queue again."""

    async def ask() -> bool:
        async with Operator(redis) as operator:
            return await operator.resume(queue)

    was_paused = asyncio.run(ask())
    if as_json:
        say_json({"queue": queue, "state": "open", "was_paused": was_paused})
        return
    say(f"{queue} is open again" if was_paused else f"{queue} was not paused")


def _row(info: QueueInfo, now_ms: int) -> tuple[str, ...]:
    oldest = info.oldest_ms
    return (
        info.queue,
        info.state.replace("_", " "),
        str(info.ready),
        "-" if oldest is None else show_duration(timedelta(milliseconds=oldest)),
        str(info.running),
        str(info.parked),
        str(info.quarantined),
        str(info.workers),
        str(info.turns_per_minute),
        "" if info.paused is None else paused_text(info.paused, now_ms),
    )


def _login() -> str:
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return ""
