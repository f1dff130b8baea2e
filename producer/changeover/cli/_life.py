"""`changeover close`, `delete` and `purge`: how sessions end, one by one and by age."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from changeover._client import Client
from changeover._operator import Operator
from changeover._purge import spans
from changeover.cli._asking import confirm
from changeover.cli._options import Json, Redis, Session
from changeover.cli._output import many, note, say, say_json
from changeover_shared._errors import PayloadError
from changeover_shared._exit_codes import UNKNOWN
from changeover_shared._results import Purged, Receipt, SessionInfo
from changeover_shared._settings import read_settings
from changeover_shared._units import show_duration

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the journal.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")]


def close(
    session: Session,
    reason: Reason = "",
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it holds now.")] = False,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """End a session once what waits is done; it can still be read."""

    async def look() -> SessionInfo:
        async with Client(redis) as client:
            return await client.session(session)

    async def ask() -> Receipt:
        async with Client(redis) as client:
            return await client.close_session(session, reason=reason)

    if dry_run:
        info = asyncio.run(look())
        if as_json:
            say_json({"session_id": session, "answer": "would_close", "waiting": info.inbox})
        else:
            say(f"{session}, {_told(info)}, would be closed; nothing was changed")
        return
    if not yes:
        confirm(f"Close {session}? It takes no message afterwards.", verb="close")
    receipt = asyncio.run(ask())
    if as_json:
        say_json(receipt)
        return
    say(f"{receipt.answer} {receipt.submission_id} at position {receipt.position}")
    note(f"changeover follow {session} --from {receipt.seq} --until {receipt.submission_id}")


def delete(
    session: Session,
    reason: Reason = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Delete a session with all it holds; what is open ends as cancelled."""

    async def look() -> str:
        async with Client(redis) as client:
            try:
                return _told(await client.session(session))
            except PayloadError:
                return "which cannot be read here"

    async def ask() -> bool:
        async with Client(redis) as client:
            return await client.delete(session, reason=reason)

    told = asyncio.run(look())
    if dry_run:
        deleted = False
    else:
        if not yes:
            confirm(f"Delete {session}, {told}? Nothing brings it back.", verb="delete")
        deleted = asyncio.run(ask())
    if as_json:
        say_json({"session_id": session, "deleted": deleted})
    elif dry_run:
        say(f"{session}, {told}, would be deleted; nothing was changed")
    else:
        say(f"{session} deleted" if deleted else f"{session} was deleted before")
    if not deleted and not dry_run:
        raise typer.Exit(UNKNOWN)


def purge(
    closed_for: Annotated[
        str | None,
        typer.Option(
            "--closed-for",
            metavar="SPAN",
            help="Delete what was closed so long; 30d.",
        ),
    ] = None,
    idle_for: Annotated[
        str | None,
        typer.Option("--idle-for", metavar="SPAN", help="Delete what was idle so long; never."),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Delete old sessions, trim long ones, forget receipts and tombstones past their window."""

    async def ask() -> Purged:
        async with Operator(redis) as operator:
            return await operator.purge(closed_for=closed_for, idle_for=idle_for, dry_run=dry_run)

    ages = spans(read_settings(), closed_for, idle_for)
    said = [f"{status} for {show_duration(age)}" for status, age in ages.items() if age is not None]
    if said and not yes and not dry_run:
        confirm(f"Delete every session that was {' or '.join(said)}?", verb="purge")
    purged = asyncio.run(ask())
    if as_json:
        say_json(purged)
        return
    for session in purged.sessions:
        say(session)
    count, would = len(purged.sessions), "would be " if dry_run else ""
    note(f"{many(count, 'session')} {would}deleted")
    if not dry_run:
        told = (many(purged.receipts, "receipt"), many(purged.tombstones, "tombstone"))
        note(f"{' and '.join(told)} forgotten")
        note(f"{many(purged.trimmed, 'session')} trimmed")


def _told(info: SessionInfo) -> str:
    waiting = f", {info.inbox} waiting" if info.inbox else ""
    return f"{info.status}, {many(info.seq, 'event')}{waiting}"
