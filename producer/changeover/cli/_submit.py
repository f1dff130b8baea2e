"""`changeover submit`: one message, or a file of them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from changeover._answers import not_completed
from changeover._client import Client
from changeover.cli._many import Defaults, submit_file
from changeover.cli._options import Agent, Json, Redis, ReplyTo, one_of
from changeover.cli._output import note, say, say_json, shown
from changeover_shared._errors import WaitTimeout
from changeover_shared._exit_codes import DONE, ENDED_BADLY
from changeover_shared._policies import read_policy
from changeover_shared._results import Outcome, Receipt
from changeover_shared._settings import Durability
from changeover_shared._units import duration, read_time
from changeover_shared._words import Ending


def submit(
    session: Annotated[
        str | None, typer.Argument(metavar="SESSION", help="The session's id.")
    ] = None,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT|-", help="What to say; - reads stdin.")
    ] = None,
    agent: Agent = None,
    submission_id: Annotated[
        str | None,
        typer.Option("--id", help="What duplicates are told by. Default: a new one."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Use this model of the app from here on.")
    ] = None,
    priority: Annotated[int, typer.Option("--priority", help="-2 to 2: a bounded head start.")] = 0,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="POLICY",
            help="What becomes of it while a turn runs: enqueue, steer, join, latest, interrupt, "
            "rollback, reject, or debounce:1.5s,8s. Default: the agent's.",
        ),
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            "--durability",
            metavar="memory|fsync|replica",
            help="What it waits for before it counts as accepted.",
            parser=one_of(*get_args(Durability)),
        ),
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option("--delay", metavar="5m", help="Run it so long after it was accepted."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Run it then, on Redis's clock: 2026-12-01T09:00+01:00, or …Z.",
        ),
    ] = None,
    reply_to: ReplyTo = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the ending.")] = False,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="30s", help="Wait no longer than this.")
    ] = None,
    many: Annotated[
        Path | None,
        typer.Option(
            "--many",
            metavar="FILE.jsonl",
            help='A message a line: {"session", "text", "id"?, "agent"?, …}; - reads stdin. '
            "The same file again repeats nothing.",
        ),
    ] = None,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Send a message."""
    if timeout is not None and not wait:
        raise typer.BadParameter("--timeout bounds --wait")
    safe = cast(Durability | None, durability)
    chosen = None if policy is None else read_policy(policy)
    when = None if at is None else read_time(at, field="--at")
    span = None if timeout is None else duration(timeout, field="--timeout")
    if many is not None:
        if session is not None or submission_id is not None:
            raise typer.BadParameter("--many takes its sessions, texts and ids from the file")
        defaults = Defaults(
            agent=agent,
            model=model,
            policy=chosen,
            priority=priority,
            durability=safe,
            at=when,
            delay=delay,
            reply_to=reply_to,
        )
        sending = submit_file(many, defaults, url=redis, wait=wait, timeout=span, as_json=as_json)
        raise typer.Exit(_run(sending))
    if session is None:
        raise typer.BadParameter("name a session, or a file with --many")
    said = _text(text)

    async def send() -> int:
        async with Client(redis) as client:
            receipt = await client.submit(
                session,
                said,
                id=submission_id,
                agent=agent,
                model=model,
                policy=chosen,
                priority=priority,
                durability=safe,
                at=when,
                delay=delay,
                reply_to=reply_to,
            )
            if not wait:
                _show_receipt(receipt, as_json=as_json)
                return DONE
            note(_receipt_line(receipt))
            outcome = await client.wait(session, receipt.submission_id, timeout=span)
            return _show_outcome(outcome, as_json=as_json)

    raise typer.Exit(_run(send()))


class StillRunning(WaitTimeout):
    """A wait that is over, told in the words of the command line."""

    def __str__(self) -> str:
        session, submission = self.receipt.session_id, self.receipt.submission_id
        return (
            f"{submission} of {session} has not ended after {_waited(self.waited)}; "
            f"{self._goes_on}; "
            f"changeover follow {session} --from {max(0, self.receipt.seq - 1)} "
            f"--until {submission}"
        )


def _run(sending: Coroutine[Any, Any, int]) -> int:
    try:
        return asyncio.run(sending)
    except WaitTimeout as late:
        raise StillRunning(receipt=late.receipt, waited=late.waited, due=late.due) from late


def _waited(span: timedelta) -> str:
    seconds = span.total_seconds()
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{round(seconds, 1):g} s"


def _text(text: str | None) -> str:
    if text is not None and text != "-":
        return text
    if text is None and sys.stdin.isatty():
        raise typer.BadParameter("give TEXT, or - for stdin")
    return sys.stdin.read().removesuffix("\n")


def _receipt_line(receipt: Receipt) -> str:
    return (
        f"{receipt.answer} {receipt.submission_id} at seq {receipt.seq}, "
        f"position {receipt.position}"
    )


def _show_receipt(receipt: Receipt, *, as_json: bool) -> None:
    if as_json:
        say_json(receipt)
        return
    say(_receipt_line(receipt))
    note(f"changeover follow {receipt.session_id} --from {max(0, receipt.seq - 1)}")


def _show_outcome(outcome: Outcome, *, as_json: bool) -> int:
    completed = outcome.ending is Ending.COMPLETED
    if as_json:
        say_json(outcome)
        return DONE if completed else ENDED_BADLY
    if not completed:
        raise not_completed(outcome)
    if outcome.text or outcome.output is None:
        say(shown(outcome.text))
    if outcome.output is not None:
        say(shown(json.dumps(outcome.output, ensure_ascii=False)))
    return DONE
