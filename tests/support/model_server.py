"""A model provider on a loopback port: scripted in tests, or an echo as a process of its own.

In a test:

    async with ModelServer(Reply(sse(chunk("Hel"), chunk("lo"), "[DONE]"))) as server:
        model = OpenAIModel("m", base_url=server.url)

As a process: `python -m tests.support.model_server --port 8080` answers chat completions with
`echo(text)`. A last message of a user that contains `[tool]` first gets a call of
`lookup(key=...)`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal, Self

_KEPT = 200
SSE = {"Content-Type": "text/event-stream"}


@dataclass(frozen=True)
class Reply:
    """What the server does with one request: a status, pieces of a body, and how it ends."""

    body: tuple[str | bytes, ...] | str = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: dict(SSE))
    then: Literal["end", "cut", "hang"] = "end"
    """`end` properly, `cut` the connection in mid-body, or `hang` until the client goes."""
    head: bool = True
    """False: not even a status is sent before `then`."""
    pause: float = 0.0
    """Seconds between the pieces of the body."""

    @property
    def pieces(self) -> tuple[str | bytes, ...]:
        """The body, piece by piece."""
        return (self.body,) if isinstance(self.body, str) else self.body


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


Answer = Callable[[Request], Reply]


def sse(*events: Any) -> tuple[str, ...]:
    """Write events as pieces of a stream; a dict with a `type` gets an `event:` line."""
    return tuple(_event(each) for each in events)


def _event(event: Any) -> str:
    if isinstance(event, str):
        return f"data: {event}\n\n"
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n"


def error(status: int, message: str, *, headers: dict[str, str] | None = None) -> Reply:
    """An answer with an error status and a JSON body."""
    body = json.dumps({"error": {"message": message, "type": "error", "code": None}})
    return Reply(body, status, {"Content-Type": "application/json", **(headers or {})})


class ModelServer:
    """Serves scripted replies in order, or what `answer` makes of each request.

    What is asked beyond the script is answered with 599. `requests` holds the last 200 of them.
    """

    def __init__(self, *script: Reply, answer: Answer | None = None) -> None:
        self.requests: list[Request] = []
        self.port = 0
        self.client_left = asyncio.Event()
        """Set when a client closed its connection while a reply was hanging."""
        self._answer = answer or self._scripted
        self._script: Iterator[Reply] = iter(script)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The base address as OpenAI's SDK wants it; Anthropic's takes `origin`."""
        return f"{self.origin}/v1"

    @property
    def origin(self) -> str:
        """The address without a path."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self, port: int = 0) -> None:
        """Listen on `port`, or on a free one."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", port, backlog=512, limit=2**20
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def aclose(self) -> None:
        """Stop listening and end what is still being answered."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def serve_forever(self) -> None:
        """Serve until cancelled."""
        assert self._server is not None
        await self._server.serve_forever()

    def _scripted(self, _: Request) -> Reply:
        return next(self._script, error(599, "the script of the test server has no reply left"))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            async for request in _requests(reader):
                self.requests.append(request)
                del self.requests[:-_KEPT]
                if not await self._reply(self._answer(request), reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # The client left, or the server ends; asyncio would log a task that says so.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _reply(
        self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Send one reply; whether the connection can be used again."""
        if reply.head:
            fields = {**reply.headers, "Transfer-Encoding": "chunked"}
            lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            writer.write(f"HTTP/1.1 {reply.status} Scripted\r\n{lines}\r\n".encode())
        for place, piece in enumerate(reply.pieces if reply.head else ()):
            if place and reply.pause:
                await asyncio.sleep(reply.pause)
            data = piece.encode() if isinstance(piece, str) else piece
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await writer.drain()
        if reply.then == "end" and reply.head:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        if reply.then == "hang":
            await reader.read()
            self.client_left.set()
        return reply.then == "end" and reply.head


async def _requests(reader: asyncio.StreamReader) -> AsyncIterator[Request]:
    """Read the requests of one connection."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        first, *lines = head.decode("latin-1").strip().split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        yield Request(method, path, headers, json.loads(body) if body else None)


def digest(text: str) -> str:
    """A short fingerprint of a text."""
    return sha256(text.encode()).hexdigest()[:12]


def echo(text: str) -> str:
    """What the process answers to a user's `text`: its first 60 characters and its fingerprint."""
    return f"answer to: {text[:60]} #{digest(text)}"


def chunk(
    text: str | None = None,
    *,
    calls: list[dict[str, Any]] | None = None,
    finish: str | None = None,
    **extra: Any,
) -> dict[str, Any]:
    """One chunk of a chat completion."""
    delta: dict[str, Any] = {} if text is None else {"role": "assistant", "content": text}
    if calls is not None:
        delta["tool_calls"] = calls
    choice = {"index": 0, "delta": {**delta, **extra}, "finish_reason": finish}
    return {**_CHUNK, "choices": [choice]}


def usage_chunk(prompt: int, completion: int, **details: Any) -> dict[str, Any]:
    """The last chunk, which has counts and no choices."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, **details}
    return {**_CHUNK, "choices": [], "usage": {**counts, "total_tokens": prompt + completion}}


_CHUNK = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "test"}


def echo_reply(request: Request, *, pause: float = 0.0) -> Reply:
    """The behaviour of the process: a pure function of the conversation that was sent."""
    messages = request.body["messages"]
    text = _last_user_text(messages)
    if "[tool]" in text and messages[-1]["role"] != "tool":
        call_id = f"call_{digest(text)}_{len(messages)}"
        events = _call_chunks(call_id, {"key": digest(text)})
    else:
        answer = echo(text)
        width = max(1, len(answer) // 4)
        starts = range(0, len(answer), width)
        events = [chunk(answer[start : start + width]) for start in starts]
        events.append(chunk(finish="stop"))
    return Reply(sse(*events, usage_chunk(len(messages), 7), "[DONE]"), pause=pause)


def _call_chunks(call_id: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    text = json.dumps(arguments)
    opened = {"index": 0, "id": call_id, "type": "function"}
    return [
        chunk(calls=[{**opened, "function": {"name": "lookup", "arguments": ""}}]),
        chunk(calls=[{"index": 0, "function": {"arguments": text[:5]}}]),
        chunk(calls=[{"index": 0, "function": {"arguments": text[5:]}}]),
        chunk(finish="tool_calls"),
    ]


def _last_user_text(messages: list[dict[str, Any]]) -> str:
    content = next(each["content"] for each in reversed(messages) if each["role"] == "user")
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


async def main(port: int, pause: float) -> None:
    """Serve the echo until the process is ended; says its address when it listens."""
    server = ModelServer(answer=lambda request: echo_reply(request, pause=pause))
    await server.start(port)
    sys.stdout.write(f"listening on {server.url}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="An echo that speaks chat completions.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two pieces")
    given = parser.parse_args()
    asyncio.run(main(given.port, given.pause))
