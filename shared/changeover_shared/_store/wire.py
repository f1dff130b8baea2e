"""The connections to one server: what is issued in one tick of the loop leaves as one pipeline.

A pipeline is not a transaction: each command has its own answer or error. Nothing is retried.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from redis.asyncio import Redis

from changeover_shared._errors import StoreUnavailable
from changeover_shared._server.connect import async_client, close_async
from changeover_shared._server.url import Target
from changeover_shared._store.barrier import Barrier, Need
from changeover_shared._store.calls import Command
from changeover_shared._store.closing import refuse_if
from changeover_shared._store.replication import NO_REPLICATION, History

MAX_IN_FLIGHT = 2
"""Pipelines on the wire at once; what comes meanwhile joins the next one."""
MAX_BATCH = 256
"""How many commands a pipeline gathers; what was issued together is never split."""
BLOCKING_CONNECTIONS = 1024
BLOCKING_SLACK_S = 5.0
"""How much longer than its block time a blocking read may take before it counts as lost."""

Group = list[tuple[Command, "asyncio.Future[Any]"]]
"""Commands that leave together, each with who waits for its answer."""


class Wire:
    """One server, as one process is connected to it. Safe to share within one event loop."""

    def __init__(self, client: Redis, blocking: Redis, *, name: str, history: History) -> None:
        # Raw replies: one shape on every server, and no parsing that nobody asked for.
        client.response_callbacks.clear()
        blocking.response_callbacks.clear()
        self.name = name
        """Where the server is, as people may see it."""
        self.history = history
        self.on_lost: Callable[[], None] = lambda: None
        """Called when a connection broke: what answers afterwards may be another server."""
        self._client = client
        self._blocking = blocking
        self._queue: deque[tuple[str, Group]] = deque()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self._closed = False
        self._barriers: dict[Need, Barrier] = {}

    @classmethod
    def to(cls, target: Target, *, name: str, timeout_s: float) -> Wire:
        """The server of a target. Nothing is sent yet."""
        history = History()
        return cls(
            async_client(target, name=name, socket_timeout=timeout_s, meet=history.meet),
            async_client(
                target,
                name=name,
                max_connections=BLOCKING_CONNECTIONS,
                socket_timeout=None,
                meet=history.meet,
            ),
            name=target.shown,
            history=history,
        )

    @classmethod
    def given(cls, client: Redis, blocking: Redis) -> Wire:
        """A server behind clients that somebody made, and that knows no replication."""
        return cls(client, blocking, name="the given client", history=History(NO_REPLICATION))

    async def send(self, commands: Sequence[Command], *, claim: str = "") -> list[Any]:
        """Run commands that leave together, in this order, on one connection; a reply or an
        error for each. They reach no server with another history than `claim`, if it is given."""
        return await asyncio.gather(*self._issue(commands, claim), return_exceptions=True)

    async def block(self, commands: Sequence[Command], *, block_s: float) -> Any:
        """Run a blocking read, with what must precede it, on a connection of its own; its reply
        or error."""
        answer = (await self._pipeline_apart(commands, block_s))[-1]
        if isinstance(answer, Exception):
            await self.doubt()
        return answer

    async def met(self) -> str:
        """The replication id of the server; makes a connection if there was none yet."""
        if not self.history.replid:
            answer = (await self.send([("PING",)]))[0]
            if isinstance(answer, BaseException):
                raise answer
        return self.history.replid

    async def confirmed(self, key: str, need: Need) -> tuple[int, str]:
        """Wait until what was written before is as safe as `need` says: how many confirmed, and
        the history that they confirmed. `key` is any key of this server."""
        barrier = self._barriers.get(need)
        if barrier is None:
            barrier = self._barriers[need] = Barrier(need, self._pipeline_apart)
        return await barrier.passed(key)

    async def doubt(self) -> None:
        """Leave no idle connection to a server that may be gone or another one by now."""
        self.on_lost()
        for client in (self._client, self._blocking):
            await client.connection_pool.disconnect(inuse_connections=False)

    async def aclose(self) -> None:
        """Wait for what is on the wire, then close every connection; nothing is sent afterwards.

        Who does not wait for so long, because the server hangs, cancels: all is closed as well.
        """
        self._closed = True
        try:
            while self._queue or self._in_flight:
                await asyncio.gather(*self._in_flight, return_exceptions=True)
                await asyncio.sleep(0)
        finally:
            await close_async(self._client)
            await close_async(self._blocking)

    async def _pipeline_apart(self, commands: Sequence[Command], block_s: float) -> list[Any]:
        """Run commands that wait, on a connection of their own; a reply or an error for each."""
        refuse_if(self._closed)
        try:
            async with asyncio.timeout(block_s + BLOCKING_SLACK_S):
                return await self._piped(self._blocking, commands)
        except Exception:
            await self.doubt()
            raise

    def _issue(self, commands: Sequence[Command], claim: str) -> list[asyncio.Future[Any]]:
        refuse_if(self._closed)
        loop = asyncio.get_running_loop()
        group: Group = [(command, loop.create_future()) for command in commands]
        self._queue.append((claim, group))
        if not self._scheduled and len(self._in_flight) < MAX_IN_FLIGHT:
            self._scheduled = True
            loop.call_soon(self._flush)
        return [future for _, future in group]

    def _flush(self) -> None:
        self._scheduled = False
        batch: Group = []
        claims: set[str] = set()
        while self._queue and len(batch) < MAX_BATCH:
            claim, group = self._queue.popleft()
            # What nobody waits for any more is not sent: it would only be late.
            if not all(future.cancelled() for _, future in group):
                batch += group
                claims.add(claim)
        if batch:
            task = asyncio.get_running_loop().create_task(self._send(batch, claims))
            self._in_flight.add(task)
            task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        if self._queue and not self._scheduled:
            self._flush()

    async def _send(self, batch: Group, claims: Collection[str]) -> None:
        try:
            replies = await self._piped(self._client, [command for command, _ in batch], claims)
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
                    future.exception()
            await self.doubt()
            return
        except BaseException:
            lost = StoreUnavailable(reason="the connection was closed")
            for _, future in batch:
                if not future.done():
                    future.set_exception(lost)
            raise
        for (_, future), reply in zip(batch, replies, strict=True):
            if future.done():
                continue
            if isinstance(reply, Exception):
                future.set_exception(reply)
            else:
                future.set_result(reply)

    async def _piped(
        self, client: Redis, commands: Sequence[Command], claims: Collection[str] = ()
    ) -> list[Any]:
        async with client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            # The pipeline's own choice, made before it sends: whoever is behind it is known then.
            pipe.connection = await client.connection_pool.get_connection()  # type: ignore[no-untyped-call]
            self.history.check(pipe.connection, claims)
            return list(await pipe.execute(raise_on_error=False))
