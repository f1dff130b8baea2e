"""`changeover compact` and `changeover rollback`: what the model is shown, made less."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from changeover._client import Client
from changeover.cli._asking import confirm
from changeover.cli._options import Json, Redis, Session
from changeover.cli._output import note, say, say_json
from changeover_shared._errors import Invalid
from changeover_shared._results import Receipt


def compact(session: Session, redis: Redis = None, as_json: Json = False) -> None:
    """Replace the older part of what the model is shown by a summary."""

    async def ask() -> Receipt:
        async with Client(redis) as client:
            return await client.compact(session)

    _show(asyncio.run(ask()), as_json=as_json)


def rollback(
    session: Session,
    turn: Annotated[str, typer.Argument(metavar="TURN", help="The first turn that leaves: t_7.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would leave.")] = False,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Take a turn and all later ones out of what the model is shown; the transcript stays."""

    async def look() -> list[str]:
        async with Client(redis) as client:
            return await _from(client, session, turn)

    async def ask() -> Receipt:
        async with Client(redis) as client:
            return await client.rollback(session, to=turn)

    leaving = asyncio.run(look())
    if not dry_run:
        if not yes:
            leave = ", ".join(leaving)
            question = f"Take {leave} of {session} out of what the model is shown?"
            confirm(question, verb="rollback")
        _show(asyncio.run(ask()), as_json=as_json)
    elif as_json:
        say_json({"session_id": session, "turns": leaving})
    else:
        say(f"{', '.join(leaving)} would leave the context; nothing was changed")


async def _from(client: Client, session: str, turn: str) -> list[str]:
    """The finished turns from `turn` on, oldest first. Raises `Invalid` if it is none of them."""
    found: list[str] = []
    before: str | None = None
    while True:
        page = await client.turns(session, before=before)
        for record in page.items:
            found.insert(0, record.turn_id)
            if record.turn_id == turn:
                return found
        if page.next is None:
            raise Invalid(field="turn", reason=f"{session} has no finished turn {turn!r:.80}")
        before = page.next


def _show(receipt: Receipt, *, as_json: bool) -> None:
    if as_json:
        say_json(receipt)
        return
    session, submission = receipt.session_id, receipt.submission_id
    say(f"{receipt.answer} {submission} at position {receipt.position}")
    note(f"changeover follow {session} --from {receipt.seq} --until {submission}")
