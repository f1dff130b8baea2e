"""`changeover quarantine` and `changeover redrive`: what is stopped, and letting it go on."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Final

import typer

from changeover._operator import Operator
from changeover.cli._asking import confirm
from changeover.cli._life import Yes
from changeover.cli._options import Json, Limit, Redis
from changeover.cli._output import ago, note, say, say_json, say_list, say_page, say_table, shown
from changeover_shared._errors import Invalid
from changeover_shared._exit_codes import DONE, REFUSED, UNANSWERED, UNKNOWN
from changeover_shared._identifiers import worker_of
from changeover_shared._results import Page, Quarantined, Redriven

By = Annotated[str, typer.Option("--by", help="Who you are, for the journal.")]
_CODES: Final = {
    "redriven": DONE,
    "would_redrive": DONE,
    "not_quarantined": REFUSED,
    "unknown": UNKNOWN,
    "failed": UNANSWERED,
}


def quarantine(
    session: Annotated[
        str | None, typer.Argument(metavar="SESSION", help="Stop this one instead of listing.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, with SESSION.")] = "",
    by: By = "",
    queue: Annotated[str | None, typer.Option("--queue", help="Only those of this queue.")] = None,
    limit: Limit = 50,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="Where the page before ended.")
    ] = None,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """List the sessions that are stopped until somebody acts, or stop one now."""
    if session is not None:
        _stop(session, reason, by, redis, as_json=as_json)
        return
    if reason:
        raise Invalid(field="reason", reason="it goes with a SESSION")

    async def read() -> Page[Quarantined]:
        async with Operator(redis) as operator:
            return await operator.quarantined(queue=queue, cursor=cursor, limit=limit)

    page = asyncio.run(read())
    if as_json:
        say_list(page.items, page.next)
        return
    now_ms = round(time.time() * 1000)
    say_table(
        ("SESSION", "QUEUE", "SINCE", "ATTEMPTS", "LAST WORKER", "WHY"),
        [_row(one, now_ms) for one in page.items],
    )
    say_page(page, option="--cursor")


def redrive(
    sessions: Annotated[
        list[str] | None, typer.Argument(metavar="SESSION", help="Which ones.")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="All of this queue.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All that are quarantined.")] = False,
    drop_input: Annotated[
        bool,
        typer.Option("--drop-input", help="Dead-letter what the turn has taken; it ends."),
    ] = False,
    drop_all: Annotated[
        bool, typer.Option("--drop-all", help="Dead-letter everything that is open.")
    ] = False,
    by: By = "",
    yes: Yes = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would go on, and what be dropped.")
    ] = False,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Let quarantined sessions try again, with all their attempts."""
    if sum((bool(sessions), queue is not None, every)) != 1:
        raise typer.BadParameter("name sessions, or a --queue, or give --all")
    if (drop_input or drop_all) and not (yes or dry_run):
        what = "everything that is open" if drop_all else "what their turns have taken"
        confirm(f"Dead-letter {what}? Nothing brings it back.", verb="redrive")

    async def ask() -> int:
        code = DONE
        async with Operator(redis) as operator:
            async for one in operator.redrive(
                sessions or None,
                queue=queue,
                drop_input=drop_input,
                drop_all=drop_all,
                by=by,
                dry_run=dry_run,
            ):
                code = max(code, _CODES[one.answer])
                if as_json:
                    say_json(one)
                else:
                    say(redriven_line(one))
                count.append(one.session_id)
        return code

    count: list[str] = []
    code = asyncio.run(ask())
    if not count and not as_json:
        note("nothing is quarantined" + ("" if queue is None else f" in {queue}"))
    raise typer.Exit(code)


def redriven_line(one: Redriven) -> str:
    """What a redrive came to, as people read it."""
    match one.answer:
        case "unknown":
            return f"{one.session_id} is unknown here; nothing was changed"
        case "failed":
            return f"{one.session_id} may or may not go on: {one.error}"
        case "not_quarantined":
            now = "" if one.status is None else f": it is {one.status}"
            return f"{one.session_id} is not quarantined{now}; nothing was changed"
        case "would_redrive":
            return f"{one.session_id} would go on{_dropped(one)}; nothing was changed"
        case "redriven":
            gone = _dropped(one)
            return f"{one.session_id} {one.status}: attempts reset{gone}, transcript untouched"


def _dropped(one: Redriven) -> str:
    if not one.dropped:
        return ""
    count = len(one.dropped)
    many = "submission" if count == 1 else "submissions"
    turn = f", {one.ended_turn} ended" if one.ended_turn else ""
    return f", {count} {many} dead-lettered ({', '.join(one.dropped)}){turn}"


def _stop(session: str, reason: str, by: str, redis: str | None, *, as_json: bool) -> None:
    async def ask() -> bool:
        async with Operator(redis) as operator:
            return await operator.quarantine(session, reason=reason, by=by)

    stopped = asyncio.run(ask())
    if as_json:
        say_json({"session_id": session, "quarantined": stopped})
    elif stopped:
        say(f"{session} quarantined: nobody runs it until: changeover redrive {session}")
    else:
        say(f"{session} is quarantined already; nothing was changed")
    raise typer.Exit(DONE if stopped else REFUSED)


def _row(one: Quarantined, now_ms: int) -> tuple[str, ...]:
    return (
        one.session_id,
        one.queue,
        ago(now_ms - one.since_ms),
        str(one.attempts),
        worker_of(one.worker) if one.worker else "-",
        shown(" ".join(one.why.split())),
    )
