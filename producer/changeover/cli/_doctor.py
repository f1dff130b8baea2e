"""`changeover doctor`: what is wrong with Redis and the fleet on it, and what to type."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from changeover._deep import Progress
from changeover._operator import Operator
from changeover._report import Report
from changeover.cli._options import Json, Redis
from changeover.cli._output import say, say_json, shown
from changeover_shared._exit_codes import ENDED_BADLY
from changeover_shared._server.check import Level

_WORDS: Final[dict[Level, tuple[str, str]]] = {
    "ok": ("ok", "green"),
    "warn": ("warn", "yellow"),
    "fail": ("FAIL", "bold red"),
}
_WIDTH: Final = 72
"""How far right remedies may stand in one column."""


def doctor(
    deep: Annotated[
        bool, typer.Option("--deep", help="Look at every key and every session as well.")
    ] = False,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Check Redis, limits, clocks, leases and keys; say what to change. Changes nothing."""

    async def look(progress: Progress) -> Report:
        operator = Operator(redis)
        try:
            return await operator.doctor(deep=deep, progress=progress)
        finally:
            await operator.aclose()

    with _bar() as progress:
        report = asyncio.run(look(progress))
    if as_json:
        say_json(report)
    else:
        _show(report)
    if report.verdict == "fail":
        raise typer.Exit(ENDED_BADLY)


def _show(report: Report) -> None:
    told = [(one, shown(one.text)) for one in report.findings]
    width = min(_WIDTH, max((len(text) for one, text in told if one.remedy), default=0))
    for one, text in told:
        word, style = _WORDS[one.level]
        say(f"{word:<4}", style=style, end="  ")
        say(text if one.remedy is None else f"{text:<{width}}  -> {shown(one.remedy)}")


@contextmanager
def _bar() -> Iterator[Progress]:
    """A bar on a terminal, once there is something to count; nothing where nobody looks."""
    columns = (
        TextColumn("looking at sessions"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(file=sys.stderr)
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)
