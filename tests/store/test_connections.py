"""Clients against real servers: how they connect, and that they never send anything twice."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import redis

from changeover_shared._errors import ServerUnfit, StoreUnavailable
from changeover_shared._server.connect import async_client, sync_client
from changeover_shared._server.foreign_errors import foreign_errors
from changeover_shared._server.url import parse_url
from tests.support.servers import SERVERS, free_port, running_server


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    with running_server(request.param) as url:
        yield url


async def test_both_clients_answer_in_bytes_under_the_name_they_were_given(server: str) -> None:
    target = parse_url(server)
    async with async_client(target, name="w1@host") as waiting:
        assert await waiting.echo("é") == "é".encode()
        assert await waiting.client_getname() == "w1@host"
    with closing(sync_client(target, name="w2@host")) as blocking:
        assert blocking.echo("é") == "é".encode()
        assert blocking.client_getname() == "w2@host"


def test_a_server_sees_what_uses_it() -> None:
    with running_server("valkey") as url, closing(sync_client(parse_url(url))) as client:
        assert "(changeover_v" in str(client.client_info()["lib-name"])


def test_a_unix_socket_and_a_database_are_reached(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with running_server("valkey", ["--unixsocket", str(path)]):
        for db in (0, 1):
            with closing(sync_client(parse_url(f"unix://{path}?db={db}"))) as client:
                client.set(f"in {db}", "v")
        with closing(sync_client(parse_url(f"unix://{path}?db=1"))) as client:
            assert client.keys() == [b"in 1"]


@contextmanager
def hanging_up() -> Iterator[tuple[str, list[bytes]]]:
    """A listener that takes one read from each connection and closes it."""
    read: list[bytes] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            while True:
                connection, _ = listener.accept()
                with connection:
                    said = connection.recv(65536)
                if said == b"stop":
                    return
                read.append(said)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        try:
            yield f"redis://127.0.0.1:{port}", read
        finally:
            with closing(socket.create_connection(("127.0.0.1", port))) as last:
                last.sendall(b"stop")
            thread.join()


async def test_a_connection_that_breaks_is_not_tried_again_by_the_async_client() -> None:
    with hanging_up() as (url, read):
        async with async_client(parse_url(url)) as client:
            with pytest.raises(StoreUnavailable), foreign_errors():
                await client.incr("k")
        assert len(read) == 1


def test_a_connection_that_breaks_is_not_tried_again_by_the_sync_client() -> None:
    with hanging_up() as (url, read), closing(sync_client(parse_url(url))) as client:
        with pytest.raises(StoreUnavailable), foreign_errors():
            client.incr("k")
        assert len(read) == 1


async def test_nobody_listening_is_no_answer() -> None:
    target = parse_url(f"redis://127.0.0.1:{free_port()}")
    async with async_client(target) as waiting:
        with pytest.raises(StoreUnavailable, match="outcome is unknown"), foreign_errors():
            await waiting.ping()
    blocking = sync_client(target)
    with pytest.raises(StoreUnavailable, match="outcome is unknown"), foreign_errors():
        blocking.ping()


async def test_a_server_that_says_nothing_is_no_answer() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        target = parse_url(f"redis://127.0.0.1:{silent.getsockname()[1]}")
        async with async_client(target, socket_timeout=0.05) as client:
            with pytest.raises(StoreUnavailable), foreign_errors():
                await client.ping()


@pytest.mark.parametrize("ticks", range(1, 20))
async def test_a_command_without_a_socket_timeout_is_cancelled_whenever_that_comes(
    ticks: int,
) -> None:
    async def ask() -> None:
        with foreign_errors():
            await client.ping()

    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        target = parse_url(f"redis://127.0.0.1:{silent.getsockname()[1]}")
        async with async_client(target, socket_timeout=None) as client:
            asking = asyncio.create_task(ask())
            for _ in range(ticks):
                await asyncio.sleep(0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking


def test_a_password_is_asked_for_and_taken() -> None:
    with running_server("valkey") as url:
        with closing(sync_client(parse_url(url))) as operator:
            operator.config_set("requirepass", "hunter2")
        place = url.removeprefix("redis://")
        for who in ("", ":wrong@", "nobody:hunter2@"):
            client = sync_client(parse_url(f"redis://{who}{place}"))
            with closing(client), pytest.raises(ServerUnfit, match="in the URL"), foreign_errors():
                client.ping()
        with closing(sync_client(parse_url(f"redis://:hunter2@{place}"))) as client:
            assert client.ping()


def test_a_user_without_a_permission_is_told_which_one() -> None:
    with running_server("valkey") as url:
        with closing(sync_client(parse_url(url))) as operator:
            operator.acl_setuser("small", enabled=True, nopass=True, commands=["+get"])
        target = parse_url(url.replace("redis://", "redis://small:x@"))
        with closing(sync_client(target)) as client:
            with pytest.raises(ServerUnfit, match="ACL SETUSER") as refusal, foreign_errors():
                client.evalsha("0" * 40, 0)
            assert isinstance(refusal.value.__cause__, redis.exceptions.NoPermissionError)


def test_a_script_on_a_server_without_memory_is_no_answer_named_oom() -> None:
    with (
        running_server("valkey", ["--maxmemory", "1"]) as url,
        closing(sync_client(parse_url(url))) as client,
    ):
        with pytest.raises(StoreUnavailable) as refusal, foreign_errors():
            client.eval("#!lua\nreturn redis.call('SET', KEYS[1], 'v')", 1, "k")
        assert refusal.value.reason.startswith("OOM")
        assert client.dbsize() == 0
