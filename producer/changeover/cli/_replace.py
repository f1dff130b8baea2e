"""`changeover drain` and `changeover evict`: how workers are replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Annotated

import typer

from changeover._drain import chosen
from changeover._operator import Operator
from changeover.cli._asking import confirm
from changeover.cli._life import Yes
from changeover.cli._options import Json, Redis
from changeover.cli._output import many, note, say, say_json
from changeover_shared._exit_codes import DONE, ENDED_BADLY
from changeover_shared._results import DrainProgress, Evicted, WorkerInfo
from changeover_shared._units import show_duration


def drain(
    worker: Annotated[
        str | None, typer.Argument(metavar="WORKER", help="A worker, as `workers` names it.")
    ] = None,
    build: Annotated[str | None, typer.Option("--build", help="All that run this build.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All that there are.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Tell how it goes on, to its end.")] = False,
    grace: Annotated[
        str | None,
        typer.Option(
            "--grace",
            metavar="SPAN",
            help="How long to wait for step boundaries; by default what each worker was told.",
        ),
    ] = None,
    yes: Yes = False,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Let a worker hand its sessions off and stop."""
    if sum((worker is not None, build is not None, every)) != 1:
        raise typer.BadParameter("name a worker, or a --build, or give --all")
    if every and not yes:
        confirm("Drain every worker? Nothing runs until others are started.", verb="drain")

    async def ask() -> int:
        async with Operator(redis) as operator:
            answers = operator.drain(worker, build=build, grace=grace)
            found = chosen(await operator.workers(), worker, build)
            # Who has been told is said first, one after the other.
            return await _told(answers, None if wait else len(found), as_json)

    raise typer.Exit(asyncio.run(ask()))


def evict(
    worker: Annotated[
        str,
        typer.Argument(
            metavar="WORKER", help="A worker, as `workers` names it, or its incarnation."
        ),
    ],
    yes: Yes = False,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Declare a worker dead: its sessions go on elsewhere now."""

    async def look() -> tuple[WorkerInfo, ...]:
        async with Operator(redis) as operator:
            return await operator.workers()

    async def ask() -> Evicted:
        async with Operator(redis) as operator:
            return await operator.evict(worker)

    if not yes:
        alive = [
            one
            for one in asyncio.run(look())
            if worker in (one.worker, one.incarnation) and one.state != "silent"
        ]
        if alive:
            held = many(alive[0].sessions, "session")
            confirm(
                f"{worker} is {alive[0].state} and holds {held}: what they do now is cut off. "
                "Evict it?",
                verb="evict",
            )
    evicted = asyncio.run(ask())
    if as_json:
        say_json(evicted)
        return
    goes = "goes" if evicted.sessions == 1 else "go"
    say(f"{evicted.incarnation} evicted: {many(evicted.sessions, 'session')} {goes} on elsewhere")


async def _told(answers: AsyncIterator[DrainProgress], most: int | None, as_json: bool) -> int:
    """Say what becomes of the workers, or `most` of it; the exit code."""
    code, said = DONE, 0
    while said != most:
        one = await anext(answers, None)
        if one is None:
            break
        said += 1
        if one.state in ("silent", "gone"):
            code = ENDED_BADLY
        if as_json:
            say_json(one)
        else:
            say(drain_line(one))
    if not said and not as_json:
        note("no worker is registered")
    elif most is not None and not as_json:
        note("changeover workers shows how far they have come")
    return code


def drain_line(one: DrainProgress) -> str:
    """What a worker has come to, as people read it."""
    lead, took = f"{one.worker}  ", show_duration(timedelta(milliseconds=one.took_ms))
    match one.state:
        case "asked":
            return f"{lead}told to drain, it holds {many(one.sessions, 'session')}"
        case "draining" if not one.handed_off:
            grace = show_duration(timedelta(milliseconds=one.grace_ms))
            return f"{lead}draining {many(one.sessions, 'session')}, grace {grace}"
        case "draining":
            return f"{lead}{one.handed_off} of {one.sessions} handed off"
        case "drained":
            whole = one.handed_off - one.forced
            forced = f", {one.forced} by force" if one.forced else ""
            left = one.sessions - one.handed_off
            lost = f", {left} left to be taken over" if left else ""
            return f"{lead}drained in {took}: {whole} at a step boundary{forced}{lost}"
        case "silent":
            return (
                f"{lead}silent: what it holds is taken over when its leases end, or now: "
                f"changeover evict {one.incarnation}"
            )
        case "gone":
            return f"{lead}gone without having drained: what it held is taken over"
