"""Whether Redis holds what the model of the protocol holds, and how each names things."""

from __future__ import annotations

from typing import Any

from changeover_shared._store import records
from changeover_shared._store.keys import SESSION_NAMES
from changeover_shared._words import SUSPECT_AFTER
from tests.protocol_model.session import AHEAD, ANONYMOUS, NEVER, PASSED, Lease, Session
from tests.support.driving import Driver, fields, text


def _numbers(entries: list[Any]) -> list[int]:
    """A stream's ids."""
    return [int(entry.split("-")[0]) for entry, _ in entries]


def submission_name(submission: int) -> str:
    return f"m{submission}"


def wait_name(name: int) -> str:
    return f"w{name}"


def turn_name(turn: int) -> str:
    return f"t_{turn}" if turn else ""


def _number(turn: str) -> int:
    return int(turn.removeprefix("t_") or 0)


def lease_record(drive: Driver, lease: Lease) -> records.Lease:
    """The model's lease as the store's."""
    return records.Lease(
        drive.session,
        lease.fence,
        f"w{lease.worker}:b{lease.boot}",
        f"nonce-{lease.nonce}",
        drive.route,
    )


async def compare(drive: Driver, model: Session) -> None:
    """Redis holds what the model holds, and what the model does not have is sound as well."""
    names = ("head", "work", "receipts")
    held = [["HGETALL", drive.key(name)] for name in names]
    indexes = ("ready", "solo", "timers", "leases", "quarantine")
    scored = [["ZSCORE", drive.shared(name), drive.session] for name in indexes]
    tables = [["HGET", drive.shared(n), drive.session] for n in ("owners", "stalls", "alerts")]
    streams = [["XRANGE", drive.key(name), "-", "+"] for name in ("inbox", "journal")]
    settled = [["ZRANGE", drive.key("settled"), "0", "-1"]]
    asked = [*held, *scored, *tables, *streams, *settled]
    found = text(await drive.executor.commands(asked))
    head, work, receipts = (fields(one) for one in found[:3])
    where = {name for name, score in zip(indexes, found[3:8], strict=True) if score is not None}
    owner, stall, alert = found[8:11]
    inbox, journal = (_numbers(entries) for entries in found[11:13])
    assert _head_of(head) == _model_head(drive, model)
    assert where == _model_indexes(model)
    assert owner == (lease_record(drive, model.lease).token if model.lease else None)
    assert (stall is None) == (owner is None)
    assert alert is None or owner is not None
    now = await drive.now()
    work.pop("_", None)
    assert _inputs_of(work, now) == {
        one.n: (submission_name(one.submission), one.kind, one.due, one.turn, one.group, one.key)
        for one in model.inputs
    }
    assert _waits_of(work, now) == {
        wait.name: (wait.kind, wait.deadline, wait.answer) for wait in model.waits
    }
    assert inbox == [one.n for one in model.inputs]
    ended = {submission_name(one.submission): one.ending for one in model.receipts}
    receipts.pop("|", None)
    assert {name: value.split("|")[4] for name, value in receipts.items()} == ended
    assert {one for one in found[13] if one != "|"} == {n for n, end in ended.items() if end}
    if head:
        # Of the life before, the events that its end wrote may still be there.
        first = min([int(head["first_seq"]), *journal])
        assert journal == list(range(first, int(head["seq"]) + 1))


async def check_owners(drive: Driver, model: Session) -> None:
    """Nothing is left that nobody removes; of a session that is gone, what its end keeps."""
    keys = drive.fleet.keys
    names = [text(key) for key in await drive.executor.command("KEYS", "*")]
    owners = {name: keys.owner_of(name) for name in names}
    assert None not in owners.values(), owners
    left = {owner.name for owner in owners.values() if owner and owner.kind == "session"}
    match model.status:
        case "none":
            assert not left
        case "deleted":
            assert left <= {"head", "journal", "receipts", "settled"}
        case _:
            assert left <= set(SESSION_NAMES)


def _model_head(drive: Driver, model: Session) -> dict[str, object]:
    if model.status == "none":
        return {}
    released = model.released and lease_record(drive, model.released).token
    return {
        "status": model.status,
        "life": model.life,
        "fence": model.fence,
        "rev": model.revision,
        "n": model.position,
        "turns": model.turns,
        "quarantine_no": model.quarantines,
        "turn": turn_name(model.turn),
        "parked": model.parked,
        "control": model.control,
        "attempts": model.attempts,
        "attempts0": model.attempts_before,
        "batch": model.batch,
        "used_nonce": f"nonce-{model.used_nonce}" if model.used_nonce else "",
        "last_rel": released or "",
        "commit_id": f"k{model.commit_id[0]}" if model.commit_id else "",
    }


def _model_indexes(model: Session) -> set[str]:
    if model.status == "ready":
        return {"solo" if model.attempts >= SUSPECT_AFTER else "ready"}
    if model.status == "held":
        return {"leases"}
    if model.status == "quarantined":
        return {"quarantine"}
    return {"timers"} if model.timed else set()


def _head_of(head: dict[str, str]) -> dict[str, object]:
    if not head:
        return {}
    control: int | None = None
    if head.get("ctl_turn"):
        control = int(head["ctl_sub"].removeprefix("m")) if head.get("ctl_sub") else ANONYMOUS
    numbers = (
        "life", "fence", "rev", "n", "turns", "quarantine_no", "attempts", "attempts0", "batch",
    )  # fmt: skip
    texts = ("status", "turn", "used_nonce", "last_rel", "commit_id")
    return {
        **{name: int(head.get(name, 0)) for name in numbers},
        **{name: head.get(name, "") for name in texts},
        "parked": head.get("parked") == "1",
        "control": control,
    }


def _inputs_of(work: dict[str, str], now: int) -> dict[int, tuple[object, ...]]:
    found: dict[int, tuple[object, ...]] = {}
    for name, value in work.items():
        if not name.startswith("w:"):
            kind, due, turn, group, submission, key, _ = value.split("|")
            key = key.removeprefix("w") if kind == "answer" else key
            found[int(name)] = (
                submission, kind, int(due) <= now, _number(turn), _number(group), key,
            )  # fmt: skip
    return found


def _waits_of(work: dict[str, str], now: int) -> dict[int, tuple[object, ...]]:
    found: dict[int, tuple[object, ...]] = {}
    for name, value in work.items():
        if name.startswith("w:"):
            kind, deadline, _, answer = value.split("|")
            when = NEVER if deadline == "0" else PASSED if int(deadline) <= now else AHEAD
            found[int(name.removeprefix("w:w"))] = (kind, when, int(answer))
    return found
