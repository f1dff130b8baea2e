"""What people read of a fleet at a glance: text that fits a terminal. No I/O here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple, TypeVar

from rich.text import Text

from changeover._fleet_health import many
from changeover._glance import Glance, QueueGlance, ServerGlance
from changeover._paused import paused_text
from changeover._rates import rates_of
from changeover.cli._output import ago, clock, one_line, table
from changeover_shared._results import WorkerInfo
from changeover_shared._sizes import show_size
from changeover_shared._units import show_duration

T = TypeVar("T")

SERVERS_SHOWN = 3
LEAST_ROWS = 1
"""A table of which nothing fits still says how many rows it has."""

_QUEUE_HEADS = (
    "QUEUE", "STATE", "READY", "OLDEST", "RUNNING", "WORKERS", "TURNS/MIN", "CLAIMS/MIN",
    "TAKEOVERS/MIN", "",
)  # fmt: skip
_WORKER_HEADS = (
    "WORKER", "STATE", "SESSIONS", "SLOTS", "TURNS/MIN", "CLAIMS/MIN", "TAKEOVERS/MIN", "BUILD",
    "RENEWED", "HOST",
)  # fmt: skip


class Line(NamedTuple):
    """A line of text, and how it looks where somebody looks."""

    text: str
    style: str = ""


class Size(NamedTuple):
    """A terminal's."""

    width: int
    height: int


def lines_of(
    glance: Glance, size: Size | None = None, *, lost: str = "", foot: str = ""
) -> list[Line]:
    """The screen, no larger than `size`. `lost`: why there is nothing newer; `foot`: the last line.

    Where not all queues or workers fit, those that need somebody most are shown, by name.
    """
    heads = [*_heads(glance, lost), Line("")]
    feet = [Line(""), Line(foot, "dim")] if foot else []
    room = None if size is None else size.height - len(heads) - len(feet) - 3
    for_queues, for_workers = _shares(len(glance.queues), len(glance.workers), room)
    queues, more_queues = _chosen(glance.queues, for_queues, _queue_calls)
    workers, more_workers = _chosen(glance.workers, for_workers, _worker_calls)
    lines = [
        *heads,
        *_table(_QUEUE_HEADS, [_queue(one, glance.at_ms) for one in queues], more_queues),
        Line(""),
        *_table(_WORKER_HEADS, [_worker(one, glance.at_ms) for one in workers], more_workers),
        *feet,
    ]
    if size is None:
        return lines
    return [Line(_cut(text, size.width), style) for text, style in lines[: size.height]]


def _heads(glance: Glance, lost: str) -> Iterator[Line]:
    yield Line(f"changeover top · fleet {glance.fleet} · {clock(glance.at_ms)}", "bold")
    if lost:
        yield Line(lost, "bold red")
    for server in glance.servers[:SERVERS_SHOWN]:
        yield Line(_server(server), "red" if server.error else "")
    others = glance.servers[SERVERS_SHOWN:]
    if others:
        ops = sum(one.ops_per_second for one in others)
        used = show_size(sum(one.used_bytes for one in others))
        yield Line(f"and {len(others)} more primaries · {used} · {ops} ops/s")
    counts = (
        many(glance.sessions, "session"),
        f"{glance.running} running",
        f"{glance.ready} ready",
        f"{glance.timers} with a timer",
        f"{glance.quarantined} quarantined",
    )
    yield Line(" · ".join(counts))
    rates = (
        f"{glance.turns_per_minute:.0f} turns/min",
        f"{glance.claims_per_minute:.0f} claims/min",
        f"{glance.takeovers_per_minute:.0f} takeovers/min",
    )
    yield Line(" · ".join(rates))


def _server(server: ServerGlance) -> str:
    if server.error:
        return f"{server.name} says nothing: {one_line(server.error)}"
    role = "primary" if server.role == "master" else server.role
    if server.replicas:
        role += f" with {many(server.replicas, 'replica')}"
    memory = show_size(server.used_bytes)
    if server.limit_bytes:
        share = 100 * server.used_bytes / server.limit_bytes
        memory += f" of {show_size(server.limit_bytes)} ({share:.0f} %)"
    else:
        memory += ", no limit"
    parts = (server.version, server.name, role, memory, f"{server.ops_per_second} ops/s")
    return " · ".join((*parts, many(server.clients, "client")))


def _queue(one: QueueGlance, now_ms: int) -> tuple[str, ...]:
    oldest = one.oldest_ms
    return (
        one.queue,
        one.state.replace("_", " "),
        str(one.ready),
        "-" if oldest is None else show_duration(timedelta(milliseconds=oldest)),
        str(one.running),
        str(one.workers),
        f"{one.turns_per_minute:.0f}",
        f"{one.claims_per_minute:.0f}",
        f"{one.takeovers_per_minute:.0f}",
        "" if one.paused is None else paused_text(one.paused, now_ms),
    )


def _worker(one: WorkerInfo, now_ms: int) -> tuple[str, ...]:
    known = one.state != "silent"
    rates = [f"{rate:.0f}" if known else "-" for rate in rates_of(one)]
    counts = (str(one.sessions), str(one.slots))
    renewed = ago(now_ms - one.renewed_at_ms)
    return (one.worker, one.state, *counts, *rates, one.build or "-", renewed, one.host)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], more: int) -> Iterator[Line]:
    first, *others = table(heads, rows)
    yield Line(first, "bold")
    for text, row in zip(others, rows, strict=True):
        yield Line(text, _STYLES.get(row[1], ""))
    if more:
        yield Line(f"and {more} more", "dim")


_STYLES = {"silent": "red", "draining": "yellow", "paused": "yellow", "partly paused": "yellow"}


def _shares(queues: int, workers: int, room: int | None) -> tuple[int, int]:
    """How many rows each table gets: neither more than half of the room unless the other one needs
    less, and each at least one."""
    if room is None:
        return queues, workers
    first = min(queues, max(room // 2, room - workers, LEAST_ROWS))
    return first, min(workers, max(room - first, LEAST_ROWS))


def _chosen(
    found: Sequence[T], rows: int, calls: Callable[[T], tuple[int, ...]]
) -> tuple[list[T], int]:
    """As many as fit into so many rows, in their order, and how many are left out; what is left out
    takes a row as well."""
    if len(found) <= rows:
        return list(found), 0
    loudest = sorted(range(len(found)), key=lambda place: calls(found[place]), reverse=True)
    places = sorted(loudest[: rows - 1])
    return [found[place] for place in places], len(found) - len(places)


def _queue_calls(one: QueueGlance) -> tuple[int, ...]:
    return (one.ready, one.state != "open", round(one.turns_per_minute))


def _worker_calls(one: WorkerInfo) -> tuple[int, ...]:
    return (one.state == "silent", one.state == "draining", one.sessions)


def _cut(text: str, width: int) -> str:
    line = Text(text)
    line.truncate(width, overflow="ellipsis")
    return line.plain
