"""A server behind TLS, with certificates that are made for the test."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import trustme

from tests.support.nodes import Node, program_of
from tests.support.servers import SERVERS, binary, free_port


@dataclass(frozen=True)
class Certificates:
    """Files of one authority: its own certificate, a server's and a client's."""

    authority: Path
    server: tuple[Path, Path]
    """Certificate and key, for 127.0.0.1 and localhost."""
    client: tuple[Path, Path]

    @classmethod
    def made_in(cls, directory: Path) -> Certificates:
        """Certificates that nobody but this authority's friends trusts."""
        directory.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        path = directory / "authority.pem"
        authority.cert_pem.write_to_path(str(path))
        pairs = []
        for who, identities in (
            ("server", ("127.0.0.1", "localhost")),
            ("client", ("worker@host.test",)),
        ):
            issued = authority.issue_cert(*identities)
            chain, key = directory / f"{who}.pem", directory / f"{who}.key"
            for blob in issued.cert_chain_pems:
                blob.write_to_path(str(chain), append=chain.exists())
            issued.private_key_pem.write_to_path(str(key))
            pairs.append((chain, key))
        return cls(path, pairs[0], pairs[1])

    def server_args(self, port: int) -> tuple[str, ...]:
        """The flags of a server that speaks TLS on a port."""
        chain, key = self.server
        return (
            "--tls-port", str(port),
            "--tls-cert-file", str(chain),
            "--tls-key-file", str(key),
            "--tls-ca-cert-file", str(self.authority),
        )  # fmt: skip


class TlsNode(Node):
    """A server with a TLS port beside the plain one that tells the test that it is there."""

    def __init__(self, program: str, directory: Path, certificates: Certificates) -> None:
        super().__init__([program], directory)
        self.tls_port = 0
        self.certificates = certificates

    def tls_url(self, *, client: bool = False, scheme: str = "rediss", **options: str) -> str:
        """The URL that trusts the server; with `client` it also shows who comes."""
        found: dict[str, str] = {"ssl_ca_certs": str(self.certificates.authority)}
        if client:
            chain, key = self.certificates.client
            found |= {"ssl_certfile": str(chain), "ssl_keyfile": str(key)}
        return f"{scheme}://127.0.0.1:{self.tls_port}/0?{urlencode(found | options)}"

    def _own_args(self) -> tuple[str, ...]:
        self.tls_port = free_port()
        return self.certificates.server_args(self.tls_port)


@contextmanager
def running_tls(kind: str = "redis", *, clients: bool = False) -> Iterator[TlsNode]:
    """Start a server that speaks TLS, and stop it; with `clients` it wants their certificates."""
    with tempfile.TemporaryDirectory(prefix="changeover-tls-") as directory:
        certificates = Certificates.made_in(Path(directory) / "certificates")
        node = TlsNode(program_of(kind), Path(directory) / "server", certificates)
        try:
            node.start("--tls-auth-clients", "yes" if clients else "no")
            yield node
        finally:
            node.kill()


def speaks_tls(kind: str) -> bool:
    """Whether this build of the server was made with TLS."""
    program = binary(kind)
    if program is None:
        return False
    without_certificates = [program, "--port", "0", "--tls-port", str(free_port())]
    said = subprocess.run(without_certificates, capture_output=True, text=True, timeout=20)
    return "Failed to configure TLS" in said.stdout


WITH_TLS = tuple(kind for kind in SERVERS if speaks_tls(kind))
