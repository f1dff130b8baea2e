"""Asks a process what it answers to probes and scrapes."""

from __future__ import annotations

import http.client
import json
import socket
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from changeover_shared._bind import read_bind


@dataclass(frozen=True)
class Reply:
    """One HTTP answer."""

    status: int
    text: str
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.text)


def ask(at: str, path: str, method: str = "GET", *, timeout_s: float = 10.0) -> Reply:
    """Ask what listens at `host:port` or `unix:PATH`. Blocks."""
    bind = read_bind(at, field="at")
    assert bind is not None
    connection = http.client.HTTPConnection(bind.host or "127.0.0.1", bind.port, timeout=timeout_s)
    if bind.path:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(timeout_s)
        connection.sock.connect(bind.path)
    try:
        connection.request(method, path)
        found = connection.getresponse()
        return Reply(found.status, found.read().decode(), dict(found.getheaders()))
    finally:
        connection.close()


def samples(exposition: str) -> dict[str, float]:
    """Every sample as `name{label="value",...}` without our prefix, labels by name."""
    found = {}
    for family in text_string_to_metric_families(exposition):
        for one in family.samples:
            labels = ",".join(f'{key}="{value}"' for key, value in sorted(one.labels.items()))
            name = one.name.removeprefix("changeover_")
            found[f"{name}{{{labels}}}" if labels else name] = one.value
    return found
