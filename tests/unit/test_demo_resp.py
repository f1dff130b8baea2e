"""Frames of the Redis protocol, as the relay of the demonstration reads them."""

from __future__ import annotations

import asyncio

import pytest

from changeover.cli._demo._resp import read_frame

FRAMES = [
    (b"*3\r\n$7\r\nEVALSHA\r\n$4\r\nab\r\n\r\n$1\r\n1\r\n", (b"EVALSHA", b"ab\r\n", b"1")),
    (b"*3\r\n$4\r\nLOST\r\n$1\r\n2\r\n:17\r\n", (b"LOST", b"2", b"17")),
    (b"*2\r\n$2\r\nOK\r\n*1\r\n$1\r\na\r\n", (b"OK", None)),
    (b"+PONG\r\n", (b"PONG",)),
    (b"-NOSCRIPT No matching script\r\n", (b"NOSCRIPT No matching script",)),
    (b"$-1\r\n", (None,)),
    (b"*-1\r\n", (None,)),
    (b"$0\r\n\r\n", (b"",)),
]


def reader_of(*pieces: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    for piece in pieces:
        reader.feed_data(piece)
    reader.feed_eof()
    return reader


async def test_frames_that_come_together_are_read_one_by_one_and_kept_byte_for_byte() -> None:
    reader = reader_of(b"".join(raw for raw, _ in FRAMES))
    for raw, words in FRAMES:
        frame = await read_frame(reader)
        assert (frame.raw, frame.words) == (raw, words)
    with pytest.raises(asyncio.IncompleteReadError):
        await read_frame(reader)


async def test_a_frame_that_is_cut_off_is_the_end_of_the_stream() -> None:
    with pytest.raises(asyncio.IncompleteReadError):
        await read_frame(reader_of(FRAMES[0][0][:-4]))
