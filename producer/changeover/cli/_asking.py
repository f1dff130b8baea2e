"""Asking before something is done that cannot be undone."""

from __future__ import annotations

import sys

import typer

from changeover.cli._output import note
from changeover_shared._errors import Invalid
from changeover_shared._exit_codes import ENDED_BADLY


def confirm(question: str, *, verb: str) -> None:
    """Ask on a terminal; end the command if the answer is not yes.

    Raises `Invalid` where nobody can be asked.
    """
    if not sys.stdin.isatty():
        raise Invalid(field=verb, reason="nobody can be asked here; give --yes")
    note(f"{question} [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        note("nothing was changed")
        raise typer.Exit(ENDED_BADLY)
