"""`changeover schedule`, `schedules` and `unschedule`: messages that are sent again and again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, cast, get_args

import typer

from changeover._client import Client
from changeover.cli._options import Agent, Json, Limit, Redis, ReplyTo, Session, one_of
from changeover.cli._output import note, one_line, say, say_json, say_list, say_page, say_table
from changeover_shared._exit_codes import UNKNOWN
from changeover_shared._policies import read_policy
from changeover_shared._results import Page, Schedule, shown_time
from changeover_shared._schedules import Missed
from changeover_shared._units import show_duration

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
_TEXT_WIDTH = 40


def schedule(
    name: Name,
    session: Session,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say.")],
    cron: Annotated[
        str | None,
        typer.Option(
            "--cron",
            metavar="'30 7 * * 1-5'",
            help="Minute, hour, day, month, weekday, as cron reads them.",
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="2h", help="So long after one another, from now on."),
    ] = None,
    tz: Annotated[
        str, typer.Option("--tz", metavar="ZONE", help="Whose clock --cron reads: Europe/Berlin.")
    ] = "UTC",
    missed: Annotated[
        str,
        typer.Option(
            "--missed",
            metavar="once|skip",
            help="What becomes of times that nobody served: one message for all, or none.",
            parser=one_of(*get_args(Missed)),
        ),
    ] = "once",
    agent: Agent = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Use this model of the app from then on.")
    ] = None,
    priority: Annotated[int, typer.Option("--priority", help="-2 to 2: a bounded head start.")] = 0,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="POLICY",
            help="What becomes of it while a turn runs, as with submit. Default: the agent's.",
        ),
    ] = None,
    reply_to: ReplyTo = None,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Send a message again and again; the same once more changes nothing."""
    chosen = None if policy is None else read_policy(policy)

    async def ask() -> Schedule:
        async with Client(redis) as client:
            return await client.schedule(
                name,
                session,
                text,
                cron=cron,
                every=every,
                tz=tz,
                missed=cast(Missed, missed),
                agent=agent,
                model=model,
                priority=priority,
                policy=chosen,
                reply_to=reply_to,
            )

    kept = asyncio.run(ask())
    if as_json:
        say_json(kept)
        return
    say(f"{kept.name} is due at {shown_time(kept.due_at_ms)}")
    note(f"changeover unschedule {kept.name}")


def schedules(
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="NAME", help="Only those after this.")
    ] = None,
    limit: Limit = 50,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """List schedules by name."""

    async def read() -> Page[Schedule]:
        async with Client(redis) as client:
            return await client.schedules(cursor=cursor, limit=limit)

    page = asyncio.run(read())
    if as_json:
        say_list(page.items, page.next)
        return
    say_table(
        ("NAME", "SESSION", "WHEN", "DUE", "MISSED", "TEXT"),
        [_row(one) for one in page.items],
    )
    say_page(page, option="--cursor")


def unschedule(name: Name, redis: Redis = None, as_json: Json = False) -> None:
    """Take a schedule away; what it has sent goes on."""

    async def ask() -> bool:
        async with Client(redis) as client:
            return await client.unschedule(name)

    gone = asyncio.run(ask())
    if as_json:
        say_json({"name": name, "unscheduled": gone})
    elif gone:
        say(f"{name} is taken away")
    else:
        note(f"there is no schedule {name}; nothing was changed")
    if not gone:
        raise typer.Exit(UNKNOWN)


def _row(one: Schedule) -> tuple[str, ...]:
    return (
        one.name,
        one.session_id,
        _times(one),
        shown_time(one.due_at_ms),
        one.missed or "-",
        one_line(one.text or "-", _TEXT_WIDTH),
    )


def _times(one: Schedule) -> str:
    if one.every_ms:
        return f"every {show_duration(timedelta(milliseconds=one.every_ms))}"
    return f"{one.cron} {one.tz}" if one.cron else "-"
