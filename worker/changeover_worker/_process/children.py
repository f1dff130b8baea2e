"""What the parent of `--processes N` answers to probes and scrapes: what its children say.

Each child listens on a unix socket in a directory of the parent's own and is asked when somebody
asks the parent. Nothing is kept between two requests, so nothing of a child that died is left.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from changeover_worker._process.instruments import CONTENT_TYPE
from changeover_worker._process.probes import Answer, Routes, said
from changeover_worker._process.service import Standing

PATIENCE_S: Final = 2.0
"""How long a child may take to answer, of the time that the parent has for its own answer."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one child said, if it said anything."""

    status: int = 0
    """Its status; 0 without an answer."""
    body: bytes = b""
    silent: bool = False
    """It listens and does not answer. One that does not listen is being started or replaced."""

    @property
    def text(self) -> str:
        """The body of a probe."""
        if self.status:
            return self.body.decode(errors="replace").strip()
        return "does not answer" if self.silent else "is being started"


class Children:
    """The children of a supervisor, as they answer."""

    def __init__(
        self,
        sockets: Mapping[str, str],
        alive: Callable[[], Collection[str]],
        draining: Callable[[], bool],
    ) -> None:
        """`sockets` has the path of each child by its name; `alive` names those that run."""
        self._sockets = sockets
        self._alive = alive
        self._draining = draining

    def routes(self) -> Routes:
        """What is answered to which path."""
        return {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/status": self._status,
            "/metrics": self._metrics,
        }

    async def standing(self) -> Standing:
        """How they are together."""
        live, ready = await self._livez(), await self._readyz()
        running, all_of = len(self._alive()), len(self._sockets)
        draining = self._draining()
        doing = f"draining, {running} of {all_of} workers left" if draining else _workers(all_of)
        return Standing(live.status == 200, ready.status == 200, doing, draining)

    async def _livez(self) -> Answer:
        """One child that is not live is enough: nothing else restarts it. One that has died is
        replaced without that."""
        answers = await self._ask_all("/livez")
        bad = {name: one for name, one in answers.items() if one.status == 503 or one.silent}
        return said(not bad, _reasons(bad) or "live")

    async def _readyz(self) -> Answer:
        answers = await self._ask_all("/readyz")
        bad = {name: one for name, one in answers.items() if one.status != 200}
        if self._draining():
            return said(False, "draining")
        return said(not bad, _reasons(bad) or "ready")

    async def _status(self) -> Answer:
        answers = await self._ask_all("/status")
        workers = [
            json.loads(one.body)
            if one.status == 200
            else {"worker": name, "live": not one.silent, "ready": False, "reasons": [one.text]}
            for name, one in answers.items()
        ]
        judged: dict[str, Any] = {
            word: all(one[word] for one in workers) for word in ("live", "ready")
        }
        body = json.dumps({**judged, "workers": workers})
        return Answer(200, body.encode() + b"\n", "application/json")

    async def _metrics(self) -> Answer:
        answers = await self._ask_all("/metrics")
        texts = {name: one.body.decode() for name, one in answers.items() if one.status == 200}
        return Answer(200, merged(texts, answers), CONTENT_TYPE)

    async def _ask_all(self, path: str) -> dict[str, Said]:
        answers = await asyncio.gather(*(self._ask(name, path) for name in self._sockets))
        return dict(zip(self._sockets, answers, strict=True))

    async def _ask(self, name: str, path: str) -> Said:
        if name not in self._alive():
            return Said()
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await _asked(self._sockets[name], path)
        except TimeoutError:
            return Said(silent=True)
        except (OSError, ValueError):
            return Said()


def merged(texts: Mapping[str, str], asked: Iterable[str]) -> bytes:
    """The metrics of some workers as one page: each sample with the name of its worker, and which
    of those that were asked have answered."""
    families: dict[str, Metric] = {}
    for worker, text in texts.items():
        for found in text_string_to_metric_families(text):
            family = families.setdefault(
                found.name, Metric(found.name, found.documentation, found.type)
            )
            family.samples += [
                one._replace(labels={**one.labels, "worker": worker}) for one in found.samples
            ]
    registry = CollectorRegistry()
    answered = Gauge(
        "changeover_worker_answers",
        "Whether a process of this parent said what it counts.",
        ("worker",),
        registry=registry,
    )
    for worker in asked:
        answered.labels(worker).set(worker in texts)
    return generate_latest(registry) + generate_latest(_Families(families.values()))


class _Families:
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """The families."""
        return self._families


def _workers(count: int) -> str:
    return f"{count} {'worker' if count == 1 else 'workers'}"


def _reasons(bad: Mapping[str, Said]) -> str:
    return "; ".join(f"{name}: {one.text}" for name, one in bad.items())


async def _asked(path: str, target: str) -> Said:
    """What is answered on a unix socket. Raises `OSError`, and `ValueError` for what is no
    answer."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(f"GET {target} HTTP/1.1\r\nHost: worker\r\n\r\n".encode())
        found = await reader.read()
    finally:
        writer.close()
    head, _, body = found.partition(b"\r\n\r\n")
    _, status, _ = head.split(b" ", 2)
    return Said(int(status), body)
