"""The one seam to Redis: what is issued in one tick of the loop leaves as one pipeline.

A pipeline is not a transaction: each command has its own answer or error. Nothing is retried
here but a script that the server has not seen; retries belong to the stores, which know the ids
that make them safe.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Self

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from changeover_shared._errors import StoreUnavailable
from changeover_shared._server.connect import async_client
from changeover_shared._server.foreign_errors import foreign_errors, translated
from changeover_shared._server.reach import Reached, reach
from changeover_shared._store.clock import ServerClock
from changeover_shared._store.closing import refuse_if
from changeover_shared._store.replication import NO_REPLICATION, knows_no_info, replication_id_in
from changeover_shared._store.scripts import Script, Value

MAX_IN_FLIGHT = 2
"""Pipelines on the wire at once; what comes meanwhile joins the next one."""
MAX_BATCH = 256
"""How many commands a pipeline gathers; what was issued together is never split."""
BLOCKING_CONNECTIONS = 1024
BLOCKING_SLACK_S = 5.0
"""How much longer than its block time a blocking read may take before it counts as lost."""

Call = tuple[Script, tuple[int, list[Value]]]
"""A script with its key count and its flat arguments."""

Command = tuple[Value, ...]
Group = list[tuple[Command, "asyncio.Future[Any]"]]
"""Commands that leave together, each with who waits for its answer."""


class Executor:
    """Runs commands and scripts over few connections. Safe to share within one event loop."""

    def __init__(self, client: Redis, blocking: Redis, reached: Reached | None = None) -> None:
        # Raw replies: one shape on every server, and no parsing that nobody asked for.
        client.response_callbacks.clear()
        blocking.response_callbacks.clear()
        self.clock = ServerClock()
        self.plain_scripts = False
        """The server knows no script flags (fakeredis)."""
        self.losses = 0
        """How often a connection broke: what answers afterwards may be another server."""
        self._client = client
        self._blocking = blocking
        self._reached = reached
        self.where = reached.target.shown if reached else "the given client"
        """The server, as people may see it."""
        self._loading: dict[str, asyncio.Future[Any]] = {}
        self._queue: deque[Group] = deque()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self._closed = False

    @classmethod
    async def connect(cls, url: str, *, name: str = "", timeout_s: float = 5.0) -> Self:
        """Reach the server of a URL, starting an embedded one. Nothing is sent yet.

        Raises `Invalid`, `ExtraMissing` or `ServerUnfit`.
        """
        reached = await asyncio.to_thread(reach, url)
        return cls(
            async_client(reached.target, name=name, socket_timeout=timeout_s),
            async_client(
                reached.target,
                name=name,
                max_connections=BLOCKING_CONNECTIONS,
                socket_timeout=None,
            ),
            reached,
        )

    async def command(self, *args: Value) -> Any:
        """Run one command. Raises `StoreUnavailable` when the outcome is unknown."""
        with foreign_errors():
            return await self._issue(args)

    async def commands(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Run several commands in one pipeline, in order; raises the first error among them."""
        with foreign_errors():
            return list(await asyncio.gather(*self._issue_all([tuple(args) for args in commands])))

    async def blocking(self, *args: Value, block_s: float) -> Any:
        """Run one blocking read on a connection of its own."""
        refuse_if(self._closed)
        with foreign_errors():
            try:
                async with asyncio.timeout(block_s + BLOCKING_SLACK_S):
                    return await self._blocking.execute_command(*args)  # type: ignore[no-untyped-call]
            except Exception:
                self.losses += 1
                raise

    async def run(self, script: Script, count_and_args: tuple[int, list[Value]]) -> list[Any]:
        """Run a script; its reply without the time that it ends with."""
        with foreign_errors():
            return await self._run(script, count_and_args)

    async def run_all(self, calls: Sequence[Call]) -> list[list[Any] | Exception]:
        """Run scripts in one pipeline, in order; each has its own reply or error."""
        replies = await self._evalsha_all(calls)
        unknown = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            with foreign_errors():
                for script in {calls[i][0].name: calls[i][0] for i in unknown}.values():
                    await self._load(script)
            again = await self._evalsha_all([calls[i] for i in unknown])
            for i, reply in zip(unknown, again, strict=True):
                replies[i] = reply
        return [self._reply_or_error(reply) for reply in replies]

    async def replication_id(self) -> str:
        """The server's replication id, or `none` where it has no INFO. Also learns whether the
        server knows script flags."""
        try:
            info = await self._issue(("INFO", "replication"))
        except Exception as error:
            if knows_no_info(error):
                self.plain_scripts = True
                return NO_REPLICATION
            raise translated(error) or error from error
        return replication_id_in(info)

    async def aclose(self) -> None:
        """Wait for what is on the wire, then close every connection; nothing is sent afterwards."""
        self._closed = True
        while self._queue or self._in_flight:
            await asyncio.gather(*self._in_flight, return_exceptions=True)
            await asyncio.sleep(0)
        await self._client.aclose()
        await self._blocking.aclose()
        if self._reached is not None:
            await asyncio.to_thread(self._reached.close)

    async def _run(self, script: Script, count_and_args: tuple[int, list[Value]]) -> list[Any]:
        call = self._evalsha(script, count_and_args)
        try:
            reply = await self._issue(call)
        except NoScriptError:
            await self._load(script)
            reply = await self._issue(call)
        return self._decoded(reply)

    async def _evalsha_all(self, calls: Sequence[Call]) -> list[Any]:
        futures = self._issue_all([self._evalsha(*call) for call in calls])
        return list(await asyncio.gather(*futures, return_exceptions=True))

    async def _load(self, script: Script) -> None:
        """Teach the server a script; all who miss it at the same time wait for one load."""
        loading = self._loading.get(script.name)
        if loading is None:
            text = script.plain if self.plain_scripts else script.text
            loading = self._loading[script.name] = self._issue(("SCRIPT", "LOAD", text))
            loading.add_done_callback(lambda _: self._loading.pop(script.name, None))
        await asyncio.shield(loading)

    def _evalsha(self, script: Script, count_and_args: tuple[int, list[Value]]) -> Command:
        count, args = count_and_args
        sha = script.plain_sha if self.plain_scripts else script.sha
        return ("EVALSHA", sha, count, *args)

    def _decoded(self, reply: list[Any]) -> list[Any]:
        self.clock.saw(int(reply.pop()))
        reply[0] = reply[0].decode()
        return reply

    def _reply_or_error(self, reply: Any) -> list[Any] | Exception:
        if not isinstance(reply, BaseException):
            return self._decoded(reply)
        known = translated(reply)
        if known is None:
            raise reply
        return known

    def _issue(self, command: Command) -> asyncio.Future[Any]:
        return self._issue_all((command,))[0]

    def _issue_all(self, commands: Sequence[Command]) -> list[asyncio.Future[Any]]:
        """Queue commands that leave together, in this order, on one connection."""
        refuse_if(self._closed)
        loop = asyncio.get_running_loop()
        group: Group = [(command, loop.create_future()) for command in commands]
        self._queue.append(group)
        if not self._scheduled and len(self._in_flight) < MAX_IN_FLIGHT:
            self._scheduled = True
            loop.call_soon(self._flush)
        return [future for _, future in group]

    def _flush(self) -> None:
        self._scheduled = False
        batch: Group = []
        while self._queue and len(batch) < MAX_BATCH:
            group = self._queue.popleft()
            # What nobody waits for any more is not sent: it would only be late.
            if not all(future.cancelled() for _, future in group):
                batch += group
        if batch:
            task = asyncio.get_running_loop().create_task(self._send(batch))
            self._in_flight.add(task)
            task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        if self._queue and not self._scheduled:
            self._flush()

    async def _send(self, batch: Group) -> None:
        try:
            async with self._client.pipeline(transaction=False) as pipe:
                for args, _ in batch:
                    pipe.execute_command(*args)
                replies = await pipe.execute(raise_on_error=False)
        except Exception as error:
            self.losses += 1
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
                    future.exception()
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
