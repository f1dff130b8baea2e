"""A relay between one worker and Redis that can hold the worker's commits on the wire."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from typing import Self
from urllib.parse import quote

from changeover.cli._demo._resp import Frame, read_frame
from changeover_shared._errors import Invalid
from changeover_shared._server.url import Target
from changeover_shared._store.scripts import script

_ENDS = (asyncio.IncompleteReadError, ConnectionError)


class Relay:
    """Passes everything on in order; a held commit keeps what follows it on its connection."""

    def __init__(self, target: Target) -> None:
        """Raises `Invalid` for a connection that cannot be read on its way."""
        if target.scheme == "rediss":
            raise Invalid(
                field="--redis",
                reason="this act reads what a worker sends, which rediss:// hides; use redis://",
                unchanged="nothing was started",
            )
        self._target = target
        self._commit = script("commit").sha.encode()
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._caught = asyncio.Event()
        self._answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    @property
    def url(self) -> str:
        """What the worker connects to."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        secret = quote(self._target.password or "", safe="")
        who = f"{quote(self._target.username or '', safe='')}:{secret}@" if secret else ""
        return f"redis://{who}127.0.0.1:{port}/{self._target.db}"

    def hold(self) -> None:
        """Hold the commits that come from here on."""
        self._open.clear()

    async def caught(self) -> None:
        """Wait until a commit is held."""
        await self._caught.wait()

    def release(self) -> None:
        """Deliver what is held, and pass on what comes."""
        self._open.set()

    async def answer(self) -> str:
        """The first word of Redis's reply to the first commit that was held."""
        return await self._answer

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        try:
            await self._pass_on(reader, writer)
        except asyncio.CancelledError:
            # The end of the relay, not an error of this connection's task.
            return
        finally:
            self._links.discard(link)
            writer.close()

    async def _pass_on(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._target.scheme == "unix":
            upstream = await asyncio.open_unix_connection(self._target.path)
        else:
            upstream = await asyncio.open_connection(self._target.host, self._target.port)
        held: list[int] = []
        """The numbers, on this connection, of requests that were held."""
        try:
            pumps = (
                asyncio.create_task(self._requests(reader, upstream[1], held)),
                asyncio.create_task(self._replies(upstream[0], writer, held)),
            )
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            upstream[1].close()

    async def _requests(self, worker: StreamReader, redis: StreamWriter, held: list[int]) -> None:
        number = 0
        with suppress(*_ENDS):
            while True:
                frame = await read_frame(worker)
                if self._is_commit(frame) and not self._open.is_set():
                    held.append(number)
                    self._caught.set()
                    await self._open.wait()
                redis.write(frame.raw)
                await redis.drain()
                number += 1

    async def _replies(self, redis: StreamReader, worker: StreamWriter, held: list[int]) -> None:
        number = 0
        with suppress(*_ENDS):
            while True:
                frame = await read_frame(redis)
                if number in held and not self._answer.done():
                    self._answer.set_result((frame.words[0] or b"").decode())
                worker.write(frame.raw)
                # Not drained: a stopped worker reads nothing, and what it is sent is little.
                number += 1

    def _is_commit(self, frame: Frame) -> bool:
        return frame.words[:2] == (b"EVALSHA", self._commit)
