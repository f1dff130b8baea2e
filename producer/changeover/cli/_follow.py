"""`changeover follow`: what a session does, from any event's number."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from changeover._client import Client
from changeover._pages import After, whole_number
from changeover.cli._lines import Lines, journal_line
from changeover.cli._options import Json, Redis, Session
from changeover.cli._output import say


def follow(
    session: Session,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="start|now|SEQ",
            help="Where to begin: SEQ is the last event that was seen.",
        ),
    ] = "now",
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="SUBMISSION", help="Stop when this one has ended."),
    ] = None,
    events: Annotated[bool, typer.Option("--events", help="Show the journal itself.")] = False,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Follow what a session does."""
    after = _after(start)

    async def read() -> None:
        async with Client(redis) as client:
            lines = Lines((await client.session(session)).agent)
            async for event in client.follow(session, after=after, until=until):
                if as_json:
                    typer.echo(event.to_json())
                elif events:
                    say(journal_line(event))
                else:
                    for line in lines.of(event):
                        say(line)

    asyncio.run(read())


def _after(start: str) -> After:
    if start == "start":
        return "start"
    if start == "now":
        return "now"
    number = whole_number(start)
    if number is None:
        raise typer.BadParameter(f"--from takes start, now or an event's number, not {start!r:.80}")
    return number
