"""A small HTTP server for probes and scrapes, in a thread and a loop of its own.

So it answers while the loop that it is asked about is blocked. It serves GET and HEAD of a few
fixed paths, one request a connection. Nobody can hold it: a connection has a few seconds in all,
from its first byte to its last, and when there are too many the oldest one makes way.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import IncompleteReadError, LimitOverrunError, StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from structlog.typing import FilteringBoundLogger

from changeover_shared._bind import Bind, read_bind
from changeover_shared._errors import BindFailed

REQUEST_S: Final = 5.0
"""How long one connection may take, from its first byte to its last."""
AT_ONCE: Final = 32
"""How many connections there may be."""
HEAD_BYTES: Final = 8192
"""The longest request, with its headers. Bodies are not read."""

TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """What is said to one request."""

    status: int
    body: bytes
    content_type: str = TEXT


Routes = Mapping[str, Callable[[], Awaitable[Answer]]]
"""What answers to a path; called on the server's own loop."""


def said(ok: bool, text: str) -> Answer:
    """An answer to a probe: 200 or 503, and the reason as one line."""
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, f"{text}\n".encode())


class ProbeServer:
    """Listens from `start` to `stop`."""

    def __init__(self, bind: Bind, routes: Routes) -> None:
        self._bind = bind
        self._routes = routes
        self._open: dict[asyncio.Task[None], None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._listening: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, name="probes", daemon=True)

    async def start(self) -> str:
        """Begin to listen; the address, with the port that was free if any was asked for. Raises
        `BindFailed`."""
        self._thread.start()
        return await asyncio.wrap_future(self._listening)

    async def stop(self) -> None:
        """Listen no more, and cut what is open."""
        if self._loop is not None and not self._loop.is_closed():
            with suppress(RuntimeError):  # it has closed in between
                self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            if not self._listening.done():
                self._listening.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = await self._listen()
        try:
            self._listening.set_result(str(_found(self._bind, server)))
            await self._stop.wait()
        finally:
            server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    async def _listen(self) -> asyncio.Server:
        bind = self._bind
        try:
            if bind.path:
                return await asyncio.start_unix_server(self._met, bind.path, limit=HEAD_BYTES)
            host = bind.host or None
            return await asyncio.start_server(self._met, host, bind.port, limit=HEAD_BYTES)
        except OSError as error:
            raise BindFailed(bind=str(bind), reason=error.strerror or str(error)) from error

    async def _met(self, reader: StreamReader, writer: StreamWriter) -> None:
        """One connection."""
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= AT_ONCE:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()
        self._open[task] = None
        try:
            async with asyncio.timeout(REQUEST_S):
                await self._talk(reader, writer)
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, asyncio.CancelledError):
            # Not raised on: what was cancelled is this connection, and nobody awaits it.
            writer.transport.abort()
        finally:
            self._open.pop(task, None)

    async def _talk(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except IncompleteReadError:
            return
        except LimitOverrunError:
            head, answer = b"", Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b"too long\n")
        else:
            answer = await self._answer(head)
        writer.write(_written(answer, with_body=not head.startswith(b"HEAD ")))
        await writer.drain()

    async def _answer(self, head: bytes) -> Answer:
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        target, _, version = rest.partition(b" ")
        if not version.startswith(b"HTTP/1."):
            return Answer(HTTPStatus.BAD_REQUEST, b"this is no HTTP/1 request\n")
        route = self._routes.get(target.partition(b"?")[0].decode("ascii", "replace"))
        if route is None:
            there = " ".join(self._routes)
            return Answer(HTTPStatus.NOT_FOUND, f"there is: {there}\n".encode())
        if method not in (b"GET", b"HEAD"):
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"GET and HEAD only\n")
        try:
            return await route()
        except Exception as error:
            failed = f"the answer failed: {type(error).__name__}: {error}\n"
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, failed.encode())


def _found(bind: Bind, server: asyncio.Server) -> Bind:
    """The address that is listened on."""
    return bind if bind.path else Bind(bind.host, int(server.sockets[0].getsockname()[1]))


def _written(answer: Answer, *, with_body: bool) -> bytes:
    status = HTTPStatus(answer.status)
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    head = "\r\n".join(lines) + "\r\n\r\n"
    return head.encode() + (answer.body if with_body else b"")


@asynccontextmanager
async def answering(bind: str, routes: Routes, log: FilteringBoundLogger) -> AsyncIterator[None]:
    """Answer to probes for as long as the block lasts, unless `bind` is `off`. Raises
    `BindFailed`."""
    found = read_bind(bind, field="health_bind")
    if found is None:
        yield
        return
    server = ProbeServer(found, routes)
    log.info("health_listening", bind=await server.start())
    try:
        yield
    finally:
        await server.stop()
