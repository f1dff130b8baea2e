"""What redis-py and the socket raise, in this package's words: the one place that knows both.

A foreign error is one of three things: Redis did not answer (the outcome is unknown, trying again
makes sense), this server cannot be used (a person must act), or a mistake of ours, which stays
what it is so that nothing retries or hides it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum, auto

from redis import exceptions as foreign

from changeover_shared._errors import ChangeoverError, ServerUnfit, StoreUnavailable


class MemoryFull(StoreUnavailable):
    """Redis refused a write because its memory is full. What it refused has changed nothing."""


class Meaning(StrEnum):
    """What a foreign error says about the server."""

    UNAVAILABLE = auto()
    """No answer, or one that passes: try again."""
    UNFIT = auto()
    """It will not pass by itself: a person must act."""
    BUG = auto()
    """This package used Redis or redis-py wrongly."""
    BY_NAME = auto()
    """The first word of the server's answer decides, see `BY_NAME`."""


BY_CLASS: Mapping[type[BaseException], Meaning] = {
    OSError: Meaning.UNAVAILABLE,  # and with it TimeoutError and asyncio.TimeoutError
    foreign.ConnectionError: Meaning.UNAVAILABLE,
    foreign.TimeoutError: Meaning.UNAVAILABLE,
    foreign.BusyLoadingError: Meaning.UNAVAILABLE,
    foreign.MaxConnectionsError: Meaning.UNAVAILABLE,
    foreign.ExternalAuthProviderError: Meaning.UNAVAILABLE,
    # A proxy whose Redis is away answers with something that is not the protocol.
    foreign.InvalidResponse: Meaning.UNAVAILABLE,
    foreign.ReadOnlyError: Meaning.UNAVAILABLE,
    foreign.OutOfMemoryError: Meaning.UNAVAILABLE,
    foreign.NoScriptError: Meaning.UNAVAILABLE,
    foreign.TryAgainError: Meaning.UNAVAILABLE,
    foreign.ClusterError: Meaning.UNAVAILABLE,
    foreign.ClusterDownError: Meaning.UNAVAILABLE,
    foreign.MasterDownError: Meaning.UNAVAILABLE,
    foreign.SlotNotCoveredError: Meaning.UNAVAILABLE,
    foreign.RedisClusterException: Meaning.UNAVAILABLE,
    foreign.AuthenticationError: Meaning.UNFIT,
    foreign.AuthorizationError: Meaning.UNFIT,
    foreign.AuthenticationWrongNumberOfArgsError: Meaning.UNFIT,
    foreign.NoPermissionError: Meaning.UNFIT,
    foreign.MovedError: Meaning.UNFIT,
    foreign.AskError: Meaning.UNFIT,
    foreign.ResponseError: Meaning.BY_NAME,
    foreign.ModuleError: Meaning.BUG,
    foreign.ExecAbortError: Meaning.BUG,
    foreign.NoSuchFieldsetError: Meaning.BUG,
    foreign.ClusterCrossSlotError: Meaning.BUG,
    foreign.CrossSlotTransactionError: Meaning.BUG,
    foreign.InvalidPipelineStack: Meaning.BUG,
    foreign.IncorrectPolicyType: Meaning.BUG,
    foreign.ChildDeadlockedError: Meaning.BUG,
    foreign.DataError: Meaning.BUG,
    foreign.PubSubError: Meaning.BUG,
    foreign.WatchError: Meaning.BUG,
    foreign.LockError: Meaning.BUG,
    foreign.LockNotOwnedError: Meaning.BUG,
    foreign.RedisError: Meaning.BUG,
}
"""Every class of `redis.exceptions` by itself; a class that is not here is what its parent is."""

BY_NAME: Mapping[str, Meaning] = {
    "BUSY": Meaning.UNAVAILABLE,
    "MISCONF": Meaning.UNAVAILABLE,
    "NOREPLICAS": Meaning.UNAVAILABLE,
    "NOGOODSLAVE": Meaning.UNAVAILABLE,
    "UNBLOCKED": Meaning.UNAVAILABLE,
    "DENIED": Meaning.UNFIT,
    "NOPROTO": Meaning.UNFIT,
    "WRONGTYPE": Meaning.UNFIT,
}
"""Answers for which redis-py has no class."""

_UNFIT_TEXTS: Mapping[str, str] = {
    "unknown command 'SENTINEL'": "it is no Sentinel; use redis://, or the Sentinels' addresses",
    "unknown command": "use a server that has this command under its own name",
    "DB index is out of range": "use a database that the server has (see CONFIG GET databases)",
    "WAITAOF cannot be used": "set appendonly yes, or use another CHANGEOVER_DURABILITY",
    "SELECT is not allowed": "use database 0, the only one here",
}
"""What a plain error answer may hold, and the remedy."""

_REMEDIES: Mapping[str, str] = {
    "NOAUTH": "give a user and a password in the URL",
    "WRONGPASS": "check the user and the password in the URL",
    "NOPERM": "give this user the commands and keys of its role (ACL SETUSER)",
    "MOVED": "this is one node of a Cluster; use a redis+cluster:// URL",
    "ASK": "this is one node of a Cluster; use a redis+cluster:// URL",
    "DENIED": "let the server listen where this process is, with a password",
    "WRONGTYPE": "something else uses keys under this prefix; set another CHANGEOVER_PREFIX",
}


@contextmanager
def foreign_errors() -> Iterator[None]:
    """Raise what redis-py and the socket raise inside as `StoreUnavailable` or `ServerUnfit`.

    Our own errors and mistakes of this package pass unchanged; the foreign error is the cause.
    """
    try:
        yield
    except Exception as error:
        known = translated(error)
        if known is None or known is error:
            raise
        raise known from error


def translated(error: BaseException) -> ChangeoverError | None:
    """Our error for a foreign one; one of ours as it is; None for a mistake of this package."""
    if isinstance(error, ChangeoverError):
        return error
    meaning = meaning_of(error)
    if isinstance(error, foreign.OutOfMemoryError):
        return MemoryFull(reason=_reason(error))
    if meaning is Meaning.UNAVAILABLE:
        return StoreUnavailable(reason=_reason(error))
    if meaning is Meaning.UNFIT:
        return ServerUnfit([_finding(error)])
    return None


def meaning_of(error: BaseException) -> Meaning:
    """Decide by class, and for a plain answer by its name."""
    for kind in type(error).__mro__:
        meaning = BY_CLASS.get(kind)
        if meaning is Meaning.BY_NAME:
            return _meaning_of_answer(error)
        if meaning is not None:
            return meaning
    return Meaning.BUG


def name_of(error: BaseException) -> str:
    """The server's own word for the error, such as `OOM`; empty when no server answered."""
    if isinstance(error, foreign.RedisError) and error.status_code:
        return error.status_code
    first = str(error).partition(" ")[0]
    answered = isinstance(error, foreign.ResponseError)
    return first if answered and first.isupper() and first.isalpha() else ""


def _meaning_of_answer(error: BaseException) -> Meaning:
    if _remedy_of_text(error):
        return Meaning.UNFIT
    return BY_NAME.get(name_of(error), Meaning.BUG)


_SENTINEL = re.compile(
    r"<redis\.(?:asyncio\.)?client\.Redis\(.*?\bhost=([^,]+),port=(\d+).*?\)>\)>\)>"
)
"""A Sentinel as redis-py shows the client that asked it, a thousand letters long."""


def _reason(error: BaseException) -> str:
    text, name = str(error) or type(error).__name__, name_of(error)
    text = _SENTINEL.sub(r"\1:\2", text)
    if not name or name == "ERR" or text.startswith(name):
        return text
    return f"{name} {text}"


def _finding(error: BaseException) -> str:
    remedy = _REMEDIES.get(name_of(error)) or _remedy_of_text(error)
    return f"it answered {_reason(error)!r}" + (f"; {remedy}" if remedy else "")


def _remedy_of_text(error: BaseException) -> str | None:
    said = str(error)
    return next((remedy for text, remedy in _UNFIT_TEXTS.items() if text in said), None)
