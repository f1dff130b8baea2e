# Written by tools/generate_sync.py from _drain.py: change that file instead.
"""Tell workers to drain, and say how far they have come."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Final

from changeover._fleet_health import judged
from changeover_shared._errors import Invalid, StoreUnavailable, UnknownWorker
from changeover_shared._results import DrainProgress, Evicted, WorkerInfo
from changeover_shared._settings import Settings
from changeover_shared._store.records import Order
from changeover_shared._store.sync_store import SyncStore

LOOK_S: Final = 0.2
GONE_MS: Final = 2_000
"""How long a worker that has left the registry is given to say how it drained."""
PATIENCE_S: Final = 30.0
"""How long an outage of Redis is ridden out while workers drain."""
OVER: Final = ("drained", "silent", "gone")
"""States after which nothing more is to be said of a worker."""


def chosen(
    workers: Sequence[WorkerInfo], worker: str | None, build: str | None
) -> tuple[WorkerInfo, ...]:
    """The workers of a name or an incarnation, or of a build, or all. Raises `UnknownWorker`."""
    if worker is not None:
        found = tuple(one for one in workers if worker in (one.worker, one.incarnation))
    elif build is not None:
        found = tuple(one for one in workers if one.build == build)
    else:
        return tuple(workers)
    if not found:
        raise UnknownWorker(worker=worker, build=build)
    return found


def drain(
    store: SyncStore, found: Sequence[WorkerInfo], grace_ms: int | None, settings: Settings
) -> Generator[DrainProgress]:
    """Tell the workers, each of which is answered with, then whatever changes with each."""
    now_ms = store.read_time()
    order = Order(grace_ms=grace_ms, given_ms=now_ms)
    last: dict[str, DrainProgress] = {}
    for one in found:
        store.orders.give(one.incarnation, order)
    for one in found:
        asked = DrainProgress(
            worker=one.worker,
            incarnation=one.incarnation,
            state="asked",
            sessions=one.sessions,
            grace_ms=grace_ms or 0,
        )
        last[one.incarnation] = asked
        yield asked
    missing_ms: dict[str, int] = {}
    answered_at = time.monotonic()
    while last:
        time.sleep(LOOK_S)
        try:
            registry = store.workers()
            answers = store.orders.read(list(last))
            now_ms = store.read_time()
        except StoreUnavailable:
            if time.monotonic() - answered_at > PATIENCE_S:
                raise
            continue
        answered_at = time.monotonic()
        known = {one.incarnation: one for one in judged(registry, now_ms, settings)}
        for before, answer in zip(list(last.values()), answers, strict=True):
            name = before.incarnation
            if name in known:
                missing_ms.pop(name, None)
            since_ms = missing_ms.setdefault(name, now_ms) if name not in known else now_ms
            after = progress(before, known.get(name), answer, missing_ms=now_ms - since_ms)
            last[name] = after
            if after != before:
                yield after.model_copy(update={"took_ms": max(0, now_ms - order.given_ms)})
            if after.state in OVER:
                del last[name]


def progress(
    before: DrainProgress, info: WorkerInfo | None, answer: Order | None, *, missing_ms: int
) -> DrainProgress:
    """What has become of a worker since the look before; `missing_ms` is for how long it has not
    been in the registry."""
    done = answer.drained if answer is not None else None
    if done is not None:
        return before.model_copy(
            update={
                "state": "drained",
                "sessions": done.sessions,
                "handed_off": done.sessions - done.left,
                "forced": done.forced,
                "grace_ms": done.grace_ms,
            }
        )
    if info is None:
        return before.model_copy(update={"state": "gone"}) if missing_ms >= GONE_MS else before
    if info.state == "silent":
        return before.model_copy(update={"state": "silent"})
    if info.draining is None:
        return before
    return before.model_copy(
        update={
            "state": "draining",
            "sessions": info.draining.sessions,
            "handed_off": info.draining.sessions - info.draining.left,
            "forced": info.draining.forced,
            "grace_ms": info.draining.grace_ms,
        }
    )


def evict(store: SyncStore, workers: Sequence[WorkerInfo], worker: str) -> Evicted:
    """Declare one incarnation dead. Raises `UnknownWorker`, and `Invalid` for several of a name."""
    found = [one for one in workers if worker in (one.worker, one.incarnation)]
    if len(found) > 1:
        named = ", ".join(f"{one.incarnation} ({one.state})" for one in found)
        raise Invalid(field="worker", reason=f"{worker} may be any of {named}: name one of them")
    if not found and ":" not in worker:
        raise UnknownWorker(worker=worker)
    incarnation = found[0].incarnation if found else worker
    # Should it live, it is to stop, instead of taking the next sessions.
    order = Order(given_ms=store.read_time(), evicted=True)
    if found:
        store.orders.give(incarnation, order)
    count = store.eviction.bury(incarnation, why="an operator declared its worker dead")
    if not found and not count:
        raise UnknownWorker(worker=worker)
    return Evicted(worker=incarnation.rpartition(":")[0], incarnation=incarnation, sessions=count)
