"""The one place that turns an error into what a person reads and a process returns."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import typer
from pydantic import BaseModel

from changeover_shared._dump import dump
from changeover_shared._errors import (
    ChangeoverError,
    Invalid,
    NotCompleted,
    NotDurable,
    RequestError,
    SetupError,
    StoreUnavailable,
    TooLarge,
    UnknownSession,
    UnknownSubmission,
    UnknownWorker,
    WaitTimeout,
)
from changeover_shared._exit_codes import (
    BUG,
    ENDED_BADLY,
    MISCONFIGURED,
    REFUSED,
    TIMED_OUT,
    UNANSWERED,
    UNKNOWN,
    WRONG_USAGE,
)

_CODES: tuple[tuple[type[ChangeoverError], int], ...] = (
    (NotCompleted, ENDED_BADLY),
    (Invalid, WRONG_USAGE),
    (TooLarge, WRONG_USAGE),
    (UnknownSession, UNKNOWN),
    (UnknownSubmission, UNKNOWN),
    (UnknownWorker, UNKNOWN),
    (WaitTimeout, TIMED_OUT),
    (RequestError, REFUSED),
    (StoreUnavailable, UNANSWERED),
    (NotDurable, UNANSWERED),
    (SetupError, MISCONFIGURED),
)


def exit_code(error: ChangeoverError) -> int:
    """What a process that stopped at this error returns; the first row that fits."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), BUG)


def code_of_refusal(word: str) -> int:
    """The same for the `code` of a `Refused`, where the error itself is gone."""
    kinds = {kind.code: code for kind, code in _CODES if kind is not RequestError}
    return kinds.get(word, REFUSED)


def end_with(error: Exception, *, as_json: bool) -> int:
    """Say on stderr what happened, what was left unchanged and what to do; the exit code."""
    known = _known(error)
    if known is None:
        return _bug(error)
    if as_json:
        typer.echo(json.dumps({"error": facts(known)}, ensure_ascii=False), err=True)
    else:
        typer.echo(f"changeover: {known}", err=True)
    return exit_code(known)


def facts(error: ChangeoverError) -> dict[str, Any]:
    """An error as data: its code, its text, and its attributes under their own names."""
    told: dict[str, Any] = {"code": error.code, "message": str(error)}
    for name, value in vars(error).items():
        if isinstance(value, timedelta):
            told[f"{name}_ms"] = round(value / timedelta(milliseconds=1))
        elif isinstance(value, BaseModel):
            told[name] = value.model_dump(mode="json")
        else:
            told[name] = value
    return told


def _known(error: Exception) -> ChangeoverError | None:
    """The error of ours that this is, or that a group of tasks was ended by."""
    if isinstance(error, ChangeoverError):
        return error
    if isinstance(error, ExceptionGroup):
        return next((known for e in error.exceptions if (known := _known(e))), None)
    return None


def _bug(error: Exception) -> int:
    typer.echo(
        f"changeover: this is a bug: {type(error).__name__}; what it was doing may be done in "
        f"part; please report it with {dump(error)}",
        err=True,
    )
    return BUG
