"""Metrics in a registry of their own, with what is written of them, as one page of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
PREFIX: Final = "changeover"

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Described:
    """A metric, for people."""

    name: str
    kind: str
    labels: Labels
    text: str


class Instruments:
    """Makes metrics."""

    def __init__(self) -> None:
        self.described: list[Described] = []
        """Every metric that was made, whether or not it was ever counted."""
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)

    def counter(
        self, name: str, text: str, labels: Labels = (), known: Sequence[str] = ()
    ) -> Counter:
        """What only grows; its name ends with `_total`. Of a label whose values are `known` each
        begins with 0: who looks at increases would not see one from nothing to 1."""
        full = self.describe(name, "counter", labels, text)
        made = Counter(full, text, labels, registry=self._registry)
        for value in known:
            made.labels(value)
        return made

    def gauge(self, name: str, text: str, labels: Labels = ()) -> Gauge:
        """What is as it is."""
        full = self.describe(name, "gauge", labels, text)
        return Gauge(full, text, labels, registry=self._registry)

    def histogram(
        self, name: str, text: str, labels: Labels, buckets: tuple[float, ...]
    ) -> Histogram:
        """How often, and how long or how much."""
        full = self.describe(name, "histogram", labels, text)
        return Histogram(full, text, labels, buckets=buckets, registry=self._registry)

    def describe(self, name: str, kind: str, labels: Labels, text: str) -> str:
        """Note what a metric is; its full name."""
        full = f"{PREFIX}_{name}"
        self.described.append(Described(full, kind, labels, text))
        return full

    def add(self, collector: Collector) -> None:
        """Show what somebody else collects; `describe` what that is."""
        self._registry.register(collector)

    def page(self) -> bytes:
        """Everything, in Prometheus's text format."""
        return generate_latest(_Shown(self._registry))


class _Shown:
    """What a registry holds without the times at which its series were made: half the text, and
    nothing asks for them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        """Its metrics."""
        for metric in self._registry.collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric
