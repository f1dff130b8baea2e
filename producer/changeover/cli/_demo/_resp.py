"""Frames of the Redis protocol, version 2: as bytes to pass on and as what they say."""

from __future__ import annotations

from asyncio import StreamReader
from dataclasses import dataclass
from typing import Final

_END: Final = b"\r\n"


@dataclass(frozen=True, slots=True)
class Frame:
    """One request or reply."""

    raw: bytes
    words: tuple[bytes | None, ...]
    """An array's own strings and numbers, or the one value; nested arrays count as None."""


async def read_frame(reader: StreamReader) -> Frame:
    """Read one whole frame. Raises `asyncio.IncompleteReadError` at the end of the stream."""
    line = await reader.readuntil(_END)
    kind, rest = line[:1], line[1:-2]
    if kind == b"$" and int(rest) >= 0:
        body = await reader.readexactly(int(rest) + len(_END))
        return Frame(line + body, (body[: -len(_END)],))
    if kind == b"*" and int(rest) >= 0:
        parts = [await read_frame(reader) for _ in range(int(rest))]
        words = tuple(None if part.raw[:1] == b"*" else part.words[0] for part in parts)
        return Frame(line + b"".join(part.raw for part in parts), words)
    if kind in (b"$", b"*"):
        return Frame(line, (None,))
    return Frame(line, (rest,))
