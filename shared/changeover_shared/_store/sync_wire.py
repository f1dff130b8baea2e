"""The connections to one server for code without an event loop: the same words as `wire.Wire`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from redis import Redis

from changeover_shared._errors import StoreUnavailable
from changeover_shared._server.connect import (
    ANSWER_TIMEOUT_S,
    MAX_CONNECTIONS,
    close_sync,
    sync_client,
)
from changeover_shared._server.url import Target
from changeover_shared._store.barrier import Need, barrier_of, confirmed_in
from changeover_shared._store.replication import NO_REPLICATION, History
from changeover_shared._store.scripts import Value

BLOCKING_CONNECTIONS = 1024
BLOCKING_SLACK_S = 5.0


class SyncWire:
    """One server, as one process is connected to it; may be shared by threads."""

    def __init__(
        self,
        client: Redis,
        blocking: Redis,
        *,
        name: str,
        history: History,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        client.response_callbacks.clear()
        blocking.response_callbacks.clear()
        self.name = name
        """Where the server is, as people may see it."""
        self.history = history
        self.on_lost: Callable[[], None] = lambda: None
        """Called when a connection broke: what answers afterwards may be another server."""
        self._client = client
        self._blocking = blocking
        self._timeout_s = timeout_s
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        """Threads that send: one more than there are connections waits for one."""

    @classmethod
    def to(cls, target: Target, *, name: str, timeout_s: float) -> SyncWire:
        """The server of a target. Nothing is sent yet."""
        history = History()
        meet = history.meet_at_once
        long_s = timeout_s * 2 + BLOCKING_SLACK_S
        return cls(
            sync_client(
                target,
                name=name,
                max_connections=MAX_CONNECTIONS,
                socket_timeout=timeout_s,
                meet=meet,
            ),
            sync_client(
                target,
                name=name,
                max_connections=BLOCKING_CONNECTIONS,
                socket_timeout=long_s,
                meet=meet,
            ),
            name=target.shown,
            history=history,
            timeout_s=timeout_s,
        )

    @classmethod
    def given(cls, client: Redis, blocking: Redis) -> SyncWire:
        """A server behind clients that somebody made, and that knows no replication."""
        return cls(client, blocking, name="the given client", history=History(NO_REPLICATION))

    def send(self, commands: Sequence[Sequence[Value]], *, claim: str = "") -> list[Any]:
        """Run commands in one pipeline; a reply or an error for each. They reach no server with
        another history than `claim`, if it is given.

        When the connection breaks, it is everybody's error: each of them may have run.
        """
        if not self._free.acquire(timeout=self._timeout_s):
            reason = f"its {MAX_CONNECTIONS} connections are all in use by other threads"
            return [StoreUnavailable(reason=reason)] * len(commands)
        try:
            return self._piped(self._client, commands, claim)
        except Exception as error:
            self.doubt()
            return [error] * len(commands)
        finally:
            self._free.release()

    def block(self, commands: Sequence[Sequence[Value]]) -> Any:
        """Run a blocking read, with what must precede it, on a connection that waits longer; its
        reply or error."""
        try:
            answer = self._piped(self._blocking, commands)[-1]
        except Exception:
            self.doubt()
            raise
        if isinstance(answer, Exception):
            self.doubt()
        return answer

    def met(self) -> str:
        """The replication id of the server; makes a connection if there was none yet."""
        if not self.history.replid:
            answer = self.send([("PING",)])[0]
            if isinstance(answer, BaseException):
                raise answer
        return self.history.replid

    def confirmed(self, key: str, need: Need) -> tuple[int, str]:
        """Wait until what was written before is as safe as `need` says: how many confirmed, and
        the history that they confirmed. `key` is any key of this server."""
        try:
            return confirmed_in(self._piped(self._blocking, barrier_of(key, need)), need)
        except Exception:
            self.doubt()
            raise

    def doubt(self) -> None:
        """Leave no idle connection to a server that may be gone or another one by now."""
        self.on_lost()
        for client in (self._client, self._blocking):
            client.connection_pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        """Close every connection; nothing is sent afterwards."""
        close_sync(self._client)
        close_sync(self._blocking)

    def _piped(
        self, client: Redis, commands: Sequence[Sequence[Value]], claim: str = ""
    ) -> list[Any]:
        with client.pipeline(transaction=False) as pipe:
            for args in commands:
                pipe.execute_command(*args)  # type: ignore[no-untyped-call]
            # The pipeline's own choice, made before it sends: whoever is behind it is known then.
            pipe.connection = client.connection_pool.get_connection()
            self.history.check(pipe.connection, [claim])
            return list(pipe.execute(raise_on_error=False))
