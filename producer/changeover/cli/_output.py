"""How results and narration are written: results to stdout, narration to stderr.

Styles only where somebody looks, and never a line cut: what is printed may be piped.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from changeover_shared._results import Page
from changeover_shared._units import show_duration

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def say(text: str = "", *, style: str = "", end: str = "\n") -> None:
    """Write a result to stdout."""
    _write(sys.stdout, text, style, end)


def note(text: str, *, style: str = "dim") -> None:
    """Write narration to stderr."""
    _write(sys.stderr, text, style, "\n")


def say_json(value: BaseModel | dict[str, Any]) -> None:
    """Write one JSON object on one line to stdout."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    typer.echo(json.dumps(plain, ensure_ascii=False, allow_nan=False))


def say_list(items: Iterable[BaseModel | dict[str, Any]], following: str | None = None) -> None:
    """Write a list as `{"items": [...], "next": ...}`."""
    plain = [i.model_dump(mode="json") if isinstance(i, BaseModel) else i for i in items]
    say_json({"items": plain, "next": following})


def say_page(page: Page[Any], *, option: str) -> None:
    """Write to stderr how the rest of a list is read, if there is one."""
    if page.next is not None:
        note(f"next page: {option} {page.next}")


def say_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write columns as wide as what is in them; columns of numbers stand right."""
    for number, line in enumerate(table(header, rows)):
        say(line, style="" if number else "bold")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The same as lines."""
    cells_of = [list(header), *[[shown(cell) for cell in row] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*cells_of, strict=True)]
    right = [bool(rows) and all(_is_count(row[i]) for row in rows) for i in range(len(header))]
    return [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells_of
    ]


def shown(text: str) -> str:
    """Text of others as a terminal may get it: without control characters."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str, width: int = 100) -> str:
    """The beginning of a text, on one line."""
    flat = " ".join(shown(text).split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


def clock(at_ms: int) -> str:
    """A time of the day in this machine's zone."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%H:%M:%S")


def ago(ms: int) -> str:
    """How long ago something was."""
    return f"{show_duration(timedelta(milliseconds=max(0, ms)))} ago"


def many(count: int, what: str) -> str:
    """So many of something: `1 step`, `2 steps`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _is_count(text: str) -> bool:
    return text in ("", "-") or text.isdigit()


def _write(stream: Any, text: str, style: str, end: str) -> None:
    # Rich decides whether anybody looks (a terminal, NO_COLOR); soft wrapping leaves lines whole.
    console = Console(file=stream, soft_wrap=True, highlight=False, markup=False, emoji=False)
    console.print(Text(text, style=style), end=end, soft_wrap=True)
