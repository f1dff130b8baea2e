"""`changeover show`: one session, whole or by one of its parts."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer
from pydantic import BaseModel

from changeover._client import Client
from changeover.cli._inbox import inbox_line, read_inbox
from changeover.cli._lines import call, journal_line, parked
from changeover.cli._options import Json, Limit, Redis, Session
from changeover.cli._output import (
    ago,
    clock,
    many,
    note,
    one_line,
    say,
    say_json,
    say_list,
    say_page,
    shown,
)
from changeover_shared._identifiers import worker_of
from changeover_shared._items import AssistantMessage, StepRecord, ToolResult, UserMessage
from changeover_shared._results import Page, SessionInfo, TranscriptItem, TurnRecord
from changeover_shared._view import View
from changeover_shared._words import Ending

T = TypeVar("T", bound=BaseModel)

_MESSAGES = 10
"""With how many of its newest messages a session is shown."""


def show(
    session: Session,
    events: Annotated[bool, typer.Option("--events", help="Its journal.")] = False,
    transcript: Annotated[
        bool, typer.Option("--transcript", help="Messages, calls, results and steps.")
    ] = False,
    turns: Annotated[bool, typer.Option("--turns", help="Its finished turns.")] = False,
    turn: Annotated[
        bool, typer.Option("--turn", help="All events of its newest turn, or of one --before.")
    ] = False,
    inbox: Annotated[bool, typer.Option("--inbox", help="What waits or is being done.")] = False,
    before: Annotated[
        str | None, typer.Option("--before", metavar="SEQ", help="Only older ones than this.")
    ] = None,
    limit: Limit = 50,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Show one session; its parts are listed newest first."""
    parts = {
        "events": events,
        "transcript": transcript,
        "turns": turns,
        "turn": turn,
        "inbox": inbox,
    }
    wanted = [part for part, chosen in parts.items() if chosen]
    if len(wanted) > 1:
        raise typer.BadParameter("choose one of " + ", ".join(f"--{part}" for part in parts))
    part = wanted[0] if wanted else "whole"
    asyncio.run(_show(session, part, before=before, limit=limit, url=redis, as_json=as_json))


async def _show(
    session: str, part: str, *, before: str | None, limit: int, url: str | None, as_json: bool
) -> None:
    if part == "inbox":
        entries = await read_inbox(session, url)
        _print(Page(items=entries), inbox_line, as_json=as_json)
        return
    async with Client(url) as client:
        match part:
            case "events":
                events = await client.events(session, before=before, limit=limit)
                _print(events, journal_line, as_json=as_json)
            case "transcript":
                items = await client.transcript(session, before=before, limit=limit)
                _print(items, transcript_line, as_json=as_json)
            case "turns":
                turns = await client.turns(session, before=before, limit=limit)
                _print(turns, turn_line, as_json=as_json)
            case "turn":
                events = await client.turn_events(session, before=before)
                _print(events, journal_line, as_json=as_json)
            case _:
                info, view = await client.session(session), await client.view(session)
                _print_whole(info, view, as_json=as_json)


def _print(page: Page[T], line: Callable[[T], str], *, as_json: bool) -> None:
    if as_json:
        say_list(page.items, page.next)
        return
    for item in page.items:
        say(line(item))
    say_page(page, option="--before")


def _print_whole(info: SessionInfo, view: View, *, as_json: bool) -> None:
    if as_json:
        say_json({"session": info.model_dump(mode="json"), "view": view.model_dump(mode="json")})
        return
    holder = f" on {worker_of(info.worker)}" if info.worker else ""
    say(f"{info.session_id} is {info.status}{holder}", style="bold")
    say(
        f"  agent {info.agent or '-'} · queue {info.queue or '-'} · model {info.model or '-'} "
        f"· fence {info.fence} · seq {info.seq} · revision {info.revision} · inbox {info.inbox}"
    )
    say(f"  tokens {info.usage.total_tokens} · updated {ago(_now_ms() - info.updated_at_ms)}")
    if info.waiting:
        say(f"  waits for {info.waiting}")
    if info.stopped is not None:
        say(f"  {one_line(info.stopped, 400)}")
        note(f"changeover redrive {info.session_id}")
    if len(view.messages) > _MESSAGES:
        note(f"the newest of {len(view.messages)} messages; all: --transcript")
    for message in view.messages[-_MESSAGES:]:
        who = message.author if message.role == "user" else info.agent
        ended = message.ending not in (None, Ending.COMPLETED)
        mark = f"  [{message.ending}]" if ended else ""
        say(f"{message.seq:>6}  {shown(who):<10} {one_line(message.text)}{mark}")
    if view.parked is not None:
        say(f"        {parked(view.parked, view.until_ms)}")
    if view.text:
        say(f"        {info.agent:<10} {one_line(view.text)} …")


def transcript_line(numbered: TranscriptItem) -> str:
    """A transcript's item as people read it."""
    match numbered.item:
        case UserMessage() as said:
            who, what = said.author, said.text
        case AssistantMessage() as answered:
            asked = [call(each.name, each.arguments) for each in answered.tool_calls]
            who, what = "assistant", "  ".join([answered.text, *asked] if answered.text else asked)
        case ToolResult() as result:
            mark = "?" if result.unknown else "✗" if result.is_error else "✓"
            who, what = result.name, f"{mark} {json.dumps(result.output, ensure_ascii=False)}"
        case StepRecord() as step:
            who, what = step.kind, _step(step)
    return f"{numbered.n:>6}  {shown(who):<12} {one_line(what)}"


def _step(step: StepRecord) -> str:
    """What a handler's durable call came to."""
    mark = "?" if step.unknown else "✗" if step.is_error else "✓"
    match step.kind, step.output:
        case "step", _ if step.unknown:
            return f"{step.name} {mark}"
        case "step", output:
            return f"{step.name} {mark} {json.dumps(output, ensure_ascii=False)}"
        case "model", {"message": {"text": str(text)}} | {"message": str(text)}:
            return f"{mark} {json.dumps(text, ensure_ascii=False)}"
        case "say", {"text": str(text)}:
            return f"{mark} {json.dumps(text, ensure_ascii=False)}"
        case _:
            return mark


def turn_line(turn: TurnRecord) -> str:
    """A turn's record as people read it."""
    why = turn.error.message if turn.error else turn.text
    return (
        f"{clock(turn.finished_at_ms)}  {turn.turn_id}  {turn.ending}  {many(turn.steps, 'step')}, "
        f"{many(turn.tool_calls, 'tool')}, {many(turn.usage.total_tokens, 'token')}, "
        f"{many(turn.takeovers, 'takeover')}  {one_line(why)}"
    )


def _now_ms() -> int:
    return round(time.time() * 1000)
