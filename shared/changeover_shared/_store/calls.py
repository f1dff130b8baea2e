"""What an executor is asked to run, and what has become of it. Shared by both executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from redis.exceptions import AskError, MovedError, NoScriptError

from changeover_shared._store.scripts import Script, Value

ROUNDS: Final = 8
"""How often one call may be sent elsewhere before something is wrong with the servers."""

ELSEWHERE: Final = (NoScriptError, MovedError, AskError)
"""Answers of servers that have run nothing, and say where or how it can be run."""

Command = tuple[Value, ...]
W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Call:
    """A script to run on the server of a key."""

    script: Script
    key: str
    arguments: Callable[[str], tuple[int, list[Value]]]
    """Its key count and flat arguments, given the replication id of the server."""

    def command(self, replid: str, *, plain: bool) -> Command:
        """What the server is sent."""
        count, args = self.arguments(replid)
        return ("EVALSHA", self.script.plain_sha if plain else self.script.sha, count, *args)


@dataclass(slots=True)
class Item(Generic[W]):
    """One command or call on its way."""

    key: str | None
    ask: Call | Command
    at: W | None = None
    """A server that is asked instead of the key's own, for a key that is on its way."""
    answer: Any = None

    def commands(self, replid: str, *, plain: bool) -> Iterator[Command]:
        """What its server is sent."""
        if self.at is not None:
            yield ("ASKING",)
        yield self.ask.command(replid, plain=plain) if isinstance(self.ask, Call) else self.ask

    def take(self, answers: Iterator[Any]) -> None:
        """Take its answer off those of its pipeline."""
        if self.at is not None:
            next(answers)
        self.answer = next(answers)
