"""Which keys nobody owns, or would ever remove. Pure but for the reading.

A key belongs to the fleet, to a partition or to a session, and ends with it. What an index names
is there; the sums of what waits are those of a partition's sessions; what a deleted session leaves
has an end of its own, or is a tombstone that a purge finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from changeover_shared._store import decode
from changeover_shared._store.executor import Executor
from changeover_shared._store.keys import Keys, Owner, PartitionKeys
from changeover_shared._store.records import EVERYBODY
from changeover_worker.testing._snapshot import every_key, keys_like

FLEET_FOR_EVER = ("agents", "config", "secret")
INDEXES = ("sessions", "leases", "timers", "quarantine")
TABLES = ("owners", "stalls", "alerts")
AFTER_DELETION = ("journal", "receipts", "settled")
"""What a deleted session leaves for a while, beside its tombstone."""


@dataclass(frozen=True)
class Held:
    """Every key of a fleet's server, with its value, its owner and when it ends."""

    keys: Keys
    values: Mapping[str, Any]
    ends: Mapping[str, int]
    """Key -> ms until it ends; -1 for one that stays."""

    def owned(self) -> Iterator[tuple[str, Owner]]:
        """The keys that have an owner."""
        for key in self.values:
            owner = self.keys.owner_of(key)
            if owner is not None:
                yield key, owner

    def head(self, session_id: str) -> dict[str, str]:
        """A session's head; empty when there is none."""
        key = self.keys.of(session_id).session(session_id, "head")
        return {field.decode(): value.decode() for field, value in self.values.get(key, ())}


async def held(executor: Executor, keys: Keys) -> Held:
    """Read all that the server holds."""
    values = await every_key(executor)
    ends = await executor.commands([("PTTL", key) for key in values])
    # One that has ended between the two reads is not there.
    there = {key: int(ms) for key, ms in zip(values, ends, strict=True) if int(ms) != -2}
    return Held(keys, {key: values[key] for key in there}, there)


async def ownerless(executor: Executor, keys: Keys) -> list[str]:
    """The keys that belong to nothing, in one look at their names."""
    names = [key.decode() for key in await keys_like(executor, "*")]
    return [name for name in names if keys.owner_of(name) is None]


def leaks(found: Held, *, workers: Collection[str] = (), purged: bool = False) -> list[str]:
    """What is left without an owner or an end, each with the reason.

    `workers` are the incarnations that live. After a purge whose window has passed (`purged`) a
    deleted session leaves nothing at all, and a route without sessions neither.
    """
    known = {key for key, _ in found.owned()}
    wrong = [f"{key} belongs to nothing" for key in found.values if key not in known]
    wrong += [
        f"partition {at.partition} {why}" for at in found.keys.all for why in _miscounted(found, at)
    ]
    for key, owner in found.owned():
        wrong += [f"{key} {why}" for why in _wrong(found, key, owner, workers, purged)]
    return sorted(wrong)


def _wrong(
    found: Held, key: str, owner: Owner, workers: Collection[str], purged: bool
) -> Iterator[str]:
    match owner.kind:
        case "fleet" if owner.name == "workers":
            for incarnation in _fields(found.values[key]):
                if incarnation not in workers:
                    yield f"registers {incarnation}, which is gone"
        case "fleet" if owner.name not in FLEET_FOR_EVER and found.ends[key] < 0:
            yield "never ends"
        case "schedules" if owner.name == "due":
            yield from _not_a_schedule(found, _members(found.values[key]))
        case "bell" | "limit" if found.ends[key] < 0:
            yield "never ends"
        case "partition":
            yield from _wrong_in_partition(found, key, owner, purged)
        case "ready":
            yield from _not_there(found, _members(found.values[key]))
        case "session":
            yield from _wrong_of_session(found, key, owner, purged)


def _wrong_in_partition(found: Held, key: str, owner: Owner, purged: bool) -> Iterator[str]:
    value = found.values[key]
    if owner.name in INDEXES:
        yield from _not_there(found, _members(value))
    elif owner.name in TABLES:
        yield from _not_there(found, _fields(value))
    elif owner.name == "graves":
        for session_id in _members(value):
            # One that lives again leaves the index with the next purge.
            if purged or not found.head(session_id):
                yield f"names {session_id}, which is not there to be purged"
    elif owner.name == "vt" and purged:
        routes = _routes_in(found, owner.partition)
        for field in _fields(value):
            if field.split(":")[1] not in routes:
                yield f"keeps {field} of a route that no session has"


def _miscounted(found: Held, at: PartitionKeys) -> Iterator[str]:
    """The sums of what waits that are not those of the partition's sessions."""
    told = decode.sums(sum(found.values.get(at.named("waiting"), ()), ()))
    counted: Counter[str] = Counter()
    for key, owner in found.owned():
        if owner.name == "work" and owner.partition == at.partition:
            work = decode.work(sum(found.values[key], ()))
            waits = sum(one.kind != "answer" and not one.turn for one in work.waiting)
            tenant = found.head(owner.session_id).get("tenant", "")
            for whose in {EVERYBODY, tenant} - {""}:
                counted[whose] += waits
    if told != {whose: count for whose, count in counted.items() if count}:
        yield f"says that {told} wait, and there are {dict(counted)}"


def _wrong_of_session(found: Held, key: str, owner: Owner, purged: bool) -> Iterator[str]:
    head = found.head(owner.session_id)
    if not head:
        yield "belongs to a session that is not there"
    elif head.get("status") != "deleted":
        if found.ends[key] >= 0:
            yield "ends before its session"
        if owner.name == "context" and str(owner.epoch) != head.get("context_epoch", "0"):
            yield "is a prefix that no context has any more"
    elif purged:
        yield "belongs to a session that was deleted and purged"
    elif owner.name == "head":
        if owner.session_id not in _members(_graves(found, owner)):
            yield "is a tombstone that no purge would find"
    elif owner.name not in AFTER_DELETION or found.ends[key] < 0:
        yield "outlives its session"


def _not_there(found: Held, session_ids: Collection[str]) -> Iterator[str]:
    for session_id in session_ids:
        if found.head(session_id).get("status", "deleted") == "deleted":
            yield f"names {session_id}, which is not there"


def _not_a_schedule(found: Held, names: Collection[str]) -> Iterator[str]:
    kept = _fields(found.values.get(found.keys.schedules.by_name, []))
    for name in names:
        if name not in kept:
            yield f"names {name}, which is no schedule"


def _routes_in(found: Held, partition: int | None) -> set[str]:
    heads = (
        found.head(owner.session_id)
        for _, owner in found.owned()
        if owner.kind == "session" and owner.name == "head" and owner.partition == partition
    )
    return {head["route"] for head in heads if "route" in head}


def _graves(found: Held, owner: Owner) -> Any:
    assert owner.partition is not None
    return found.values.get(found.keys.all[owner.partition].named("graves"), [])


def _members(flat: Any) -> list[str]:
    """The members of a sorted set, read with its scores."""
    return [member.decode() for member in flat[::2]]


def _fields(pairs: Any) -> list[str]:
    """The fields of a hash."""
    return [field.decode() for field, _ in pairs]
