"""The seam to Redis for code without an event loop: the same words as `_executor.Executor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError

from changeover_shared._errors import ChangeoverError, Invalid, StoreUnavailable
from changeover_shared._server.connect import sync_client
from changeover_shared._server.foreign_errors import foreign_errors, translated
from changeover_shared._server.reach import Reached, reach
from changeover_shared._store.clock import ServerClock
from changeover_shared._store.closing import refuse_if
from changeover_shared._store.replication import NO_REPLICATION, knows_no_info, replication_id_in
from changeover_shared._store.scripts import Script, Value

BLOCKING_SLACK_S = 5.0

Call = tuple[Script, tuple[int, list[Value]]]


class SyncExecutor:
    """Runs commands and scripts; may be shared by threads."""

    def __init__(self, client: Redis, blocking: Redis, reached: Reached | None = None) -> None:
        client.response_callbacks.clear()
        blocking.response_callbacks.clear()
        self.clock = ServerClock()
        self.plain_scripts = False
        self.losses = 0
        self._closed = False
        self._client = client
        self._blocking = blocking
        self._reached = reached
        self.where = reached.target.shown if reached else "the given client"
        """The server, as people may see it."""

    @classmethod
    def connect(cls, url: str, *, name: str = "", timeout_s: float = 5.0) -> SyncExecutor:
        """Reach the server of a URL, starting an embedded one. Nothing is sent yet."""
        reached = reach(url)
        return cls(
            sync_client(reached.target, name=name, socket_timeout=timeout_s),
            sync_client(reached.target, name=name, socket_timeout=timeout_s * 2 + BLOCKING_SLACK_S),
            reached,
        )

    def command(self, *args: Value) -> Any:
        """Run one command. Raises `StoreUnavailable` when the outcome is unknown."""
        with self._noting_losses():
            return self._client.execute_command(*args)  # type: ignore[no-untyped-call]

    def commands(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Run several commands in one pipeline; raises the first error among them."""
        with self._noting_losses():
            return self._pipeline(commands, raise_on_error=True)

    def blocking(self, *args: Value, block_s: float) -> Any:
        """Run one blocking read; `block_s` is at most twice the connection's time-out."""
        with self._noting_losses():
            return self._blocking.execute_command(*args)  # type: ignore[no-untyped-call]

    def run(self, script: Script, count_and_args: tuple[int, list[Value]]) -> list[Any]:
        """Run a script; its reply without the time that it ends with."""
        answer = self.run_all([(script, count_and_args)])[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run_all(self, calls: Sequence[Call]) -> list[list[Any] | Exception]:
        """Run scripts in one pipeline; each has its own reply or error.

        When the connection breaks, it is everybody's error: each of them may have run.
        """
        answers = self._answers(calls)
        for i, (script, args) in enumerate(calls):
            if isinstance(answers[i], NoScriptError):
                with self._noting_losses():
                    text = script.plain if self.plain_scripts else script.text
                    self._client.execute_command("SCRIPT", "LOAD", text)  # type: ignore[no-untyped-call]
                answers[i] = self._answers([(script, args)])[0]
        return [self._decoded(answer) for answer in answers]

    def replication_id(self) -> str:
        """The server's replication id, or `none` where it has no INFO."""
        refuse_if(self._closed)
        try:
            info = self._client.execute_command("INFO", "replication")  # type: ignore[no-untyped-call]
        except Exception as error:
            if knows_no_info(error):
                self.plain_scripts = True
                return NO_REPLICATION
            raise translated(error) or error from error
        return replication_id_in(info)

    def close(self) -> None:
        """Close every connection; nothing is sent afterwards."""
        self._closed = True
        self._client.close()
        self._blocking.close()
        if self._reached is not None:
            self._reached.close()

    @contextmanager
    def _noting_losses(self) -> Iterator[None]:
        refuse_if(self._closed)
        try:
            with foreign_errors():
                yield
        except StoreUnavailable:
            self.losses += 1
            raise
        except (AttributeError, TypeError, ValueError) as error:
            # What redis-py stumbles over when another thread takes its socket away.
            if not self._closed:
                raise
            raise StoreUnavailable(reason="the connection was closed") from error

    def _evalsha(self, script: Script, count_and_args: tuple[int, list[Value]]) -> list[Value]:
        count, args = count_and_args
        sha = script.plain_sha if self.plain_scripts else script.sha
        return ["EVALSHA", sha, count, *args]

    def _answers(self, calls: Sequence[Call]) -> list[Any]:
        try:
            with self._noting_losses():
                return self._pipeline([self._evalsha(*call) for call in calls])
        except Invalid:
            raise
        except ChangeoverError as error:
            return [error] * len(calls)

    def _pipeline(
        self, commands: Sequence[Sequence[Value]], *, raise_on_error: bool = False
    ) -> list[Any]:
        with self._client.pipeline(transaction=False) as pipe:
            for args in commands:
                pipe.execute_command(*args)  # type: ignore[no-untyped-call]
            return list(pipe.execute(raise_on_error=raise_on_error))

    def _decoded(self, answer: Any) -> list[Any] | Exception:
        if isinstance(answer, Exception):
            known = translated(answer)
            if known is None:
                raise answer
            return known
        self.clock.saw(int(answer.pop()))
        answer[0] = answer[0].decode()
        return list(answer)
