"""`changeover interrupt` and `changeover cancel`: controls, which answer at once."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from changeover._client import Client
from changeover.cli._options import Json, Redis, Session
from changeover.cli._output import note, say, say_json
from changeover_shared._exit_codes import DONE, REFUSED, UNKNOWN
from changeover_shared._results import Cancelled, Interrupted

_INTERRUPTS: Final = {
    "accepted": "interrupted: {turn} ends as soon as its worker sees it",
    "merged": "{turn} was interrupted before; nothing was added",
    "duplicate": "this interrupt was accepted before; nothing was added",
    "no_turn": "no turn runs; nothing was changed",
    "stale_turn": "another turn runs: {turn}; nothing was changed",
}
_CANCELS: Final = {
    "cancelled": ("cancelled", DONE),
    "already_running": (
        "runs already, in {turn}; left as it is: changeover interrupt {session} --turn {turn}",
        REFUSED,
    ),
    "already_ended": ("has ended already: {ending}; nothing was changed", REFUSED),
    "unknown": ("is unknown here; nothing was changed", UNKNOWN),
}


def interrupt(
    session: Session,
    turn: Annotated[str | None, typer.Option("--turn", help="Stop this turn and no other.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the journal.")] = "",
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Stop the running turn."""

    async def ask() -> Interrupted:
        async with Client(redis) as client:
            return await client.interrupt(session, turn=turn, reason=reason)

    answer = asyncio.run(ask())
    if as_json:
        say_json(answer)
    elif answer.quarantined and answer.answer == "accepted":
        say(f"interrupted: {answer.turn_id} ends once {session} is let go on")
        note(f"{session} is quarantined: changeover redrive {session}")
    else:
        say(_INTERRUPTS[answer.answer].format(turn=answer.turn_id))
    raise typer.Exit(REFUSED if answer.answer == "stale_turn" else DONE)


def cancel(
    session: Session,
    submission: Annotated[str, typer.Argument(metavar="SUBMISSION", help="Its id.")],
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Take a waiting submission back."""

    async def ask() -> Cancelled:
        async with Client(redis) as client:
            return await client.cancel(session, submission)

    answer = asyncio.run(ask())
    text, code = _CANCELS[answer.answer]
    if as_json:
        say_json(answer)
    elif answer.quarantined:
        say(f"{submission} is in {answer.turn_id} of a quarantined session; left as it is")
        note(f"to give it up: changeover redrive {session} --drop-input")
    else:
        told = text.format(session=session, turn=answer.turn_id, ending=answer.ending)
        say(f"{submission} {told}")
    raise typer.Exit(code)
