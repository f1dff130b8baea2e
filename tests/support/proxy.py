"""A proxy before a server that does to replies and connections what networks do.

It runs on a thread of its own, so that tests with and without an event loop, and other processes,
can use it alike. A command that has reached it is run, whatever becomes of its reply.
"""

from __future__ import annotations

import asyncio
import random
import threading
from asyncio import StreamReader, StreamWriter
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

from changeover.cli._demo._resp import Frame, read_frame

T = TypeVar("T")

WITHIN_S = 20.0
"""How long a signal of the proxy may take before the test has failed."""
_ENDS = (asyncio.IncompleteReadError, ConnectionError)


@dataclass(frozen=True)
class Lost:
    """A reply that never reached its client."""

    command: Frame
    reply: Frame


@dataclass(eq=False)
class _Link:
    """One connection of a client, with its own to the server."""

    client: StreamWriter
    pending: deque[Frame] = field(default_factory=deque)
    """Commands that the server has not answered."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Nothing is pending, or nothing will be answered any more."""
    deaf: bool = False
    """Half-open: nothing passes any more, and nobody is told."""
    losing: bool = False
    """A reply was lost: the client is gone, and no other reply of this link reaches it."""


class Proxy:
    """Passes everything on until it is told otherwise."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.scheme == "redis" and parts.hostname and parts.port, url
        self._upstream = (parts.hostname, parts.port)
        self._database = parts.path
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loses: Callable[[Frame], bool] = _nothing
        self._withholds: bytes | None = None
        self._swallowing = False
        self._delay_s = 0.0
        self._heard: Counter[bytes] = Counter()
        self._news = threading.Condition()
        self.lost: list[Lost] = []
        """What was answered and lost, oldest first."""
        self.connections = 0
        """How many connections clients have opened."""

    @property
    def url(self) -> str:
        """What clients connect to."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"redis://127.0.0.1:{port}{self._database}"

    # What it is told

    def lose_next(self, command: str = "EVALSHA") -> None:
        """Lose the reply of the next such command, and with it the client's connection."""
        wanted = command.encode()

        def once(asked: Frame) -> bool:
            if asked.words[0] != wanted:
                return False
            self._loses = _nothing
            return True

        self._loses = once

    def withhold_next(self, word: str) -> None:
        """Lose the next reply of a script that begins with a word, and keep its connection: the
        client waits."""
        self._withholds = word.encode()

    def lose_at_random(
        self, probability: float, seed: int, commands: Sequence[str] = ("EVALSHA",)
    ) -> None:
        """Lose replies of such commands with this probability each."""
        chance = random.Random(seed)
        wanted = {command.encode() for command in commands}
        self._loses = lambda asked: asked.words[0] in wanted and chance.random() < probability

    def lose_nothing(self) -> None:
        """Pass every reply on from here."""
        self._loses = _nothing

    def swallow(self) -> None:
        """Neither pass on nor close: connections are half-open from here, also new ones."""
        self._swallowing = True

        async def deafen() -> None:
            for link in self._links:
                link.deaf = True

        self._in_loop(deafen())

    def pass_on(self) -> None:
        """Let new connections pass again; those that were half-open stay so."""
        self._swallowing = False

    def delay(self, seconds: float) -> None:
        """Keep each reply back for so long."""
        self._delay_s = seconds

    def cut(self) -> None:
        """Break every connection that there is."""

        async def cut() -> None:
            for link in self._links:
                link.client.transport.abort()

        self._in_loop(cut())

    def lead_to(self, url: str) -> None:
        """Take new connections to another server; those that are open stay where they are."""
        parts = urlsplit(url)
        assert parts.hostname and parts.port, url
        self._upstream = (parts.hostname, parts.port)

    def heard(self, command: str) -> int:
        """How many such commands have come."""
        return self._heard[command.encode()]

    def wait_for(self, command: str, count: int = 1) -> None:
        """Return once the proxy has heard so many such commands. Blocks the thread."""
        wanted = command.encode()
        with self._news:
            came = self._news.wait_for(lambda: self._heard[wanted] >= count, WITHIN_S)
        assert came, f"no {command} has come"

    # How it works

    def start(self) -> None:
        """Listen on a free loopback port."""
        self._thread.start()

        async def listen() -> asyncio.Server:
            return await asyncio.start_server(self._accept, "127.0.0.1", 0)

        self._server = self._in_loop(listen())

    def stop(self) -> None:
        """Break every connection and listen no more."""

        async def end() -> None:
            assert self._server is not None
            self._server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._in_loop(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN_S)

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        link = _Link(writer, deaf=self._swallowing)
        self._links.add(link)
        # Cancelled by the end of the proxy, which is no error of this connection's task.
        with suppress(asyncio.CancelledError, *_ENDS):
            await self._carry(link, reader)
        self._links.discard(link)
        await _closed(writer)
        self._tasks.discard(task)

    async def _carry(self, link: _Link, reader: StreamReader) -> None:
        answers, server = await asyncio.open_connection(*self._upstream)
        requests = asyncio.create_task(self._requests(link, reader, server))
        replies = asyncio.create_task(self._replies(link, answers))
        try:
            await asyncio.wait((requests, replies), return_when=asyncio.FIRST_COMPLETED)
            if link.losing:
                await link.idle.wait()
        finally:
            # First of all, for the end of the proxy may cancel what follows.
            server.close()
            for pump in (requests, replies):
                pump.cancel()
            await asyncio.gather(requests, replies, return_exceptions=True)
            await _closed(server)

    async def _requests(self, link: _Link, client: StreamReader, server: StreamWriter) -> None:
        with suppress(*_ENDS):
            while True:
                frame = await read_frame(client)
                self._hear(frame)
                if link.deaf:
                    continue
                link.pending.append(frame)
                link.idle.clear()
                server.write(frame.raw)
                await server.drain()

    async def _replies(self, link: _Link, server: StreamReader) -> None:
        with suppress(*_ENDS):
            while True:
                reply = await read_frame(server)
                command = link.pending.popleft()
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                if not link.deaf:
                    self._deliver(link, command, reply)
                if not link.pending:
                    link.idle.set()
        link.idle.set()

    def _deliver(self, link: _Link, command: Frame, reply: Frame) -> None:
        # A server that does not know the script has run nothing: there is no loss to speak of.
        unknown = reply.raw.startswith(b"-NOSCRIPT")
        if self._withholds is not None and reply.words[0] == self._withholds:
            self._withholds = None
            link.deaf = True
            self.lost.append(Lost(command, reply))
            return
        if link.losing or (not unknown and self._loses(command)):
            self.lost.append(Lost(command, reply))
            if not link.losing:
                link.losing = True
                link.client.close()
            return
        link.client.write(reply.raw)

    def _hear(self, frame: Frame) -> None:
        with self._news:
            self._heard[frame.words[0] or b""] += 1
            self._news.notify_all()


@contextmanager
def proxy_before(url: str) -> Iterator[Proxy]:
    """A running proxy before the server of a `redis://` URL."""
    proxy = Proxy(url)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()


async def _closed(writer: StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _nothing(_: Frame) -> bool:
    return False
