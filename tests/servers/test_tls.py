"""Servers behind TLS: whom they let in, and whom a client takes for the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from changeover_shared._errors import StoreUnavailable
from changeover_shared._store.executor import Executor
from tests.support.cluster import running_cluster
from tests.support.driving import Driver
from tests.support.fleet import small_settings, stores_on
from tests.support.tls import WITH_TLS, Certificates, running_tls


async def ping(url: str) -> bytes:
    executor = await Executor.connect(url)
    try:
        answer: bytes = await executor.command("PING")
        return answer
    finally:
        await executor.aclose()


@pytest.mark.parametrize("kind", WITH_TLS)
async def test_a_server_is_reached_by_those_who_trust_its_authority(
    kind: str, tmp_path: Path
) -> None:
    strangers = Certificates.made_in(tmp_path)
    with running_tls(kind) as server:
        assert await ping(server.tls_url()) == b"PONG"
        with pytest.raises(StoreUnavailable, match="certificate verify failed"):
            await ping(server.tls_url(ssl_ca_certs=str(strangers.authority)))


@pytest.mark.parametrize("kind", WITH_TLS)
async def test_a_server_that_wants_certificates_refuses_clients_without_one(kind: str) -> None:
    with running_tls(kind, clients=True) as server:
        assert await ping(server.tls_url(client=True)) == b"PONG"
        with pytest.raises(StoreUnavailable):
            await ping(server.tls_url())


@pytest.mark.parametrize("kind", WITH_TLS)
async def test_a_cluster_behind_tls_takes_sessions_on_each_of_its_masters(kind: str) -> None:
    with running_cluster(kind, tls=True, node_timeout_ms=60_000) as cluster:
        executor = await Executor.connect(cluster.url)
        async with stores_on(executor, small_settings(partitions=16)) as stores:
            for i in range(16):
                assert (await Driver(stores, f"web:{i}").submit())[0] == "ACCEPTED"
            served = {
                await executor.primary_of(at.named("meta")) for at in stores.producer.keys.all
            }
        assert len(served) == 3
