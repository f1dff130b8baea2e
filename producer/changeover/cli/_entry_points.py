"""Commands of other packages: entry points of the group `changeover.cli`, imported when needed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import typer

from changeover.cli._options import START
from changeover_shared._errors import ExtraMissing
from changeover_shared._server.process import find_program
from changeover_shared._server.url import parse_url

GROUP: Final = "changeover.cli"
_ABOUT: Final = {"worker": "Run sessions."}
"""What help says of a command that it does not import."""


def add_entry_points(app: typer.Typer, wanted: str | None) -> None:
    """Add every command of the group. Raises `ExtraMissing` when the wanted one has no extra."""
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.name == wanted:
            command = load(point)
            app.command(point.name, help=about(command), rich_help_panel=START)(command)
        else:
            app.command(
                point.name, help=_ABOUT.get(point.name, point.value), rich_help_panel=START
            )(_not_wanted)


def load(point: EntryPoint) -> Callable[..., Any]:
    """Import a command. Raises `ExtraMissing`, which names the extra of the command's name.

    A module that is missing for another reason is a mistake of the command's package.
    """
    try:
        found: Callable[..., Any] = point.load()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _modules_of_extra(point):
            raise
        raise ExtraMissing(what=f"changeover {point.name}", extra=point.name) from error
    return found


def _modules_of_extra(point: EntryPoint) -> set[str]:
    """What the extra of a command's name installs, by the names that are imported.

    A distribution is taken to hold the module of its own name, as those of our extras do.
    """
    required = (point.dist.requires if point.dist is not None else None) or ()
    extra = re.compile(rf"""extra == ['"]{re.escape(point.name)}['"]""")
    return {
        re.split(r"[^\w.-]", line, maxsplit=1)[0].replace("-", "_").lower()
        for line in required
        if extra.search(line)
    }


def require_parts(command: str, url: str) -> None:
    """Raise `ExtraMissing` in the name of `command` when workers cannot be started here.

    It names all that is missing: a server too, when `url` asks for an embedded one.
    """
    for point in entry_points(group=GROUP, name="worker"):
        try:
            load(point)
        except ExtraMissing as error:
            extra = "worker" if _has_server(url) else "worker,embedded"
            raise ExtraMissing(what=command, extra=extra) from error


def _has_server(url: str) -> bool:
    """Whether no server has to be installed for `url`."""
    if parse_url(url).scheme != "embedded":
        return True
    try:
        find_program()
    except ExtraMissing:
        return False
    return True


def about(command: Callable[..., Any]) -> str:
    """What help says of a command: its docstring, each paragraph on one line for any terminal."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _not_wanted() -> None:
    """Stands for a command in the list of commands."""
