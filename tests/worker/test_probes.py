"""The probe server alone: over real HTTP, from a thread of its own, held by nobody."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from changeover_shared._bind import Bind
from changeover_shared._errors import BindFailed
from changeover_worker._process import probes
from changeover_worker._process.probes import Answer, ProbeServer, said
from tests.support.probing import Reply, ask


async def _fine() -> Answer:
    return said(True, "fine")


async def _broken() -> Answer:
    raise RuntimeError("no answer")


ROUTES = {"/fine": _fine, "/broken": _broken}


@asynccontextmanager
async def listening(bind: Bind = Bind("127.0.0.1")) -> AsyncIterator[str]:  # noqa: B008
    server = ProbeServer(bind, ROUTES)
    at = await server.start()
    try:
        yield at
    finally:
        await server.stop()


@contextmanager
def connected(at: str) -> Iterator[socket.socket]:
    host, _, port = at.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        yield connection


async def get(at: str, path: str, method: str = "GET") -> Reply:
    return await asyncio.to_thread(ask, at, path, method)


async def test_a_path_is_answered_with_or_without_a_query() -> None:
    async with listening() as at:
        for path in ("/fine", "/fine?verbose"):
            reply = await get(at, path)
            assert (reply.status, reply.text) == (200, "fine\n")
            assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"


async def test_head_is_answered_without_the_body() -> None:
    async with listening() as at:
        reply = await get(at, "/fine", "HEAD")
        assert (reply.status, reply.text, reply.headers["Content-Length"]) == (200, "", "5")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_nothing_but_get_and_head_is_answered(method: str) -> None:
    async with listening() as at:
        reply = await get(at, "/fine", method)
        assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD")


async def test_another_path_is_told_which_there_are() -> None:
    async with listening() as at:
        reply = await get(at, "/")
        assert (reply.status, reply.text) == (404, "there is: /fine /broken\n")


async def test_an_answer_that_fails_is_an_answer() -> None:
    async with listening() as at:
        reply = await get(at, "/broken")
        assert (reply.status, reply.text) == (500, "the answer failed: RuntimeError: no answer\n")
        assert (await get(at, "/fine")).status == 200


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /fine\r\n\r\n", b"400"),
        (b"\x16\x03\x01 hello\r\n\r\n", b"400"),
        (b"GET /fine SPDY/1\r\n\r\n", b"400"),
        (b"GET /fine HTTP/1.1\r\n" + b"X: y\r\n" * 4000, b"431"),
        (b"GET /f\xff HTTP/1.1\r\n\r\n", b"404"),
    ],
)
async def test_what_is_no_request_gets_an_answer_of_its_own(
    request_bytes: bytes, status: bytes
) -> None:
    def talk() -> bytes:
        with connected(at) as connection:
            connection.sendall(request_bytes)
            return connection.recv(4096)

    async with listening() as at:
        assert (await asyncio.to_thread(talk)).split(b" ")[1] == status


async def test_it_answers_while_the_loop_that_started_it_is_blocked() -> None:
    async with listening() as at:
        # Blocking on purpose: nothing runs on this loop until the answer is here.
        assert ask(at, "/fine").status == 200


async def test_clients_that_say_nothing_make_way_for_one_that_asks() -> None:
    async with listening() as at:
        silent = [socket.create_connection(("127.0.0.1", int(at.rpartition(":")[2])))]
        try:
            for _ in range(3 * probes.AT_ONCE):
                silent.append(socket.create_connection(silent[0].getpeername()))
            assert (await get(at, "/fine")).status == 200
        finally:
            for one in silent:
                one.close()


async def test_a_client_that_takes_its_time_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "REQUEST_S", 0.3)

    def dawdle() -> float:
        began = time.monotonic()
        with connected(at) as connection:
            try:
                while True:
                    connection.sendall(b"G")
                    connection.settimeout(0.05)
                    try:
                        if not connection.recv(1):
                            break
                    except TimeoutError:
                        continue
            except OSError:
                pass
        return time.monotonic() - began

    async with listening() as at:
        # Each byte came in time; the connection as a whole did not.
        assert await asyncio.to_thread(dawdle) < 10


async def test_a_unix_socket_can_be_asked_and_is_taken_over_from_a_dead_process(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "s")
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(path)
    stale.close()
    async with listening(Bind(path=path)) as at:
        assert at == f"unix:{path}"
        assert (await get(at, "/fine")).status == 200


async def test_an_address_that_is_taken_is_a_typed_error() -> None:
    async with listening() as at:
        taken = Bind("127.0.0.1", int(at.rpartition(":")[2]))
        with pytest.raises(BindFailed, match="in use"):
            await ProbeServer(taken, ROUTES).start()


async def test_an_address_of_another_machine_is_a_typed_error() -> None:
    with pytest.raises(BindFailed):
        await ProbeServer(Bind("192.0.2.1", 1), ROUTES).start()


async def test_nothing_listens_any_more_once_it_was_stopped() -> None:
    async with listening() as at:
        pass
    with pytest.raises(ConnectionRefusedError):
        await get(at, "/fine")
