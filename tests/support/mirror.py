"""The real scripts and the model side by side: each request goes to both, and both must agree."""

from __future__ import annotations

from typing import Any

from changeover_shared._events import Event
from changeover_shared._store import records
from changeover_shared._store.keys import SESSION_NAMES
from changeover_shared._words import SUSPECT_AFTER, CommitKind, GiveUp, Next
from tests.protocol_model.invariants import check_session, check_step
from tests.protocol_model.requests import (
    Append,
    Cancel,
    Claim,
    Commit,
    Delete,
    Reply,
    Request,
    Rules,
    Submit,
)
from tests.protocol_model.requests import GiveUp as GiveUpRequest
from tests.protocol_model.running import run_script
from tests.protocol_model.session import AHEAD, ANONYMOUS, NEVER, PASSED, History, Lease, Session
from tests.protocol_model.worker_scripts import defer, purge, reap, refused_write
from tests.support.driving import LATER_MS, Driver, fields, text

MAX_INBOX = 4
RULES = Rules(depth=MAX_INBOX, max_attempts=5, suspect_after=SUSPECT_AFTER)
LONG_MS = 600_000
"""A lease that ends in no example by itself."""


class Mirror:
    """One session, in Redis and in the model."""

    def __init__(self, drive: Driver) -> None:
        self.drive = drive
        self.model = Session()

    # Requests

    async def ask(self, asked: Request) -> Reply:
        """Run a request on both sides; they answer alike."""
        before = self.model
        after, expected = run_script(before, asked, RULES)
        check_step(before, after, asked, expected, RULES)
        self.model = after
        answered = await self._real(asked)
        assert answered == expected._replace(view=None), f"{asked}: {answered}, not {expected}"
        return expected

    async def _real(self, asked: Request) -> Reply:
        match asked:
            case Submit():
                reply = await self._submit(asked)
                return Reply(reply[0], reply[5] if reply[0] == "DUPLICATE" else "")
            case Cancel():
                reply = await self.drive.cancel(_sub(asked.target), _sub(asked.submission))
                return Reply(reply[0], reply[1] if reply[0] == "ENDED" else "")
            case Delete():
                return Reply((await self.drive.delete(life=asked.life))[0])
            case Claim():
                (answer,) = await self.drive.claim(
                    incarnation=f"w{asked.worker}:b{asked.boot}",
                    nonce=f"nonce-{asked.nonce}",
                    ttl_ms=LONG_MS,
                    solo=asked.solo,
                    max_attempts=RULES.max_attempts,
                )
                granted = answer[0] == "GRANTED"
                return Reply(answer[0], fence=int(answer[1]) if granted else 0)
            case Append():
                return Reply((await self.drive.append(self._lease(asked.lease), asked.batch))[0])
            case Commit():
                reply = await self._commit(asked)
                return Reply(reply[0], reply[1] if reply[0] in ("OK", "REPLAY") else "")
            case GiveUpRequest():
                lease = self._lease(asked.lease)
                reply = await self.drive.give_up(lease, GiveUp(asked.reason))
                if self.model.put_off:
                    await self._put_off_for_long()
                return Reply(reply[0])

    async def _submit(self, asked: Submit) -> list[Any]:
        target = _wait(asked.target) if asked.cls == "answer" else _turn(asked.target)
        due_ms = 0 if asked.due else await self.drive.now() + LATER_MS
        quiet = 0 if asked.due else LATER_MS
        return await self.drive.submit(
            _sub(asked.submission),
            cls=asked.cls,
            policy=asked.policy,
            target=target,
            key=asked.key,
            digest=f"d{asked.content}",
            may_create=asked.may_create,
            due_ms=due_ms,
            event=Event(type="message") if asked.cls == "turn" else None,
            quiet=quiet,
            max_wait=quiet,
        )

    async def _commit(self, asked: Commit) -> list[Any]:
        later = await self.drive.now() + LATER_MS
        opened = tuple(
            records.NewWait(_wait(one.name), one.kind, later if one.deadline else 0)
            for one in asked.opens
        )
        request = records.Commit(
            commit_id=f"k{asked.commit_id[0]}",
            rev=asked.revision,
            turn=_turn(asked.turn),
            kind=CommitKind(asked.kind),
            checkpoint=asked.checkpoint,
            next=Next(asked.next),
            take=asked.take,
            consume=tuple((_wait(name), answer) for name, answer in asked.consume),
            closes=tuple(_wait(name) for name in asked.closes),
            waits=opened,
            end=asked.finish,  # type: ignore[arg-type]
            progress=asked.progress,
            events=(Event(type="step_completed"),) if asked.kind == "step" else (),
        )
        return await self.drive.committing(self._lease(asked.lease), request)

    def _lease(self, lease: Lease) -> records.Lease:
        return records.Lease(
            self.drive.session,
            lease.fence,
            f"w{lease.worker}:b{lease.boot}",
            f"nonce-{lease.nonce}",
            self.drive.route,
        )

    async def renew(self, lease: Lease) -> None:
        refused = refused_write(self.model, lease, RULES).replace("DELETED", "GONE")
        (answer,) = await self.drive.renew(self._lease(lease), ttl_ms=LONG_MS)
        assert answer[0] == (refused or "OK")

    # Upkeep

    async def reap(self) -> None:
        self.model, expected = reap(self.model, RULES)
        (answer,) = await self.drive.reap()
        assert answer[0] == expected.word

    async def defer(self) -> None:
        self.model, expected = defer(self.model, RULES)
        assert (await self.drive.defer(span_ms=LATER_MS))[0] == expected.word

    async def purge(self, *, old: bool) -> None:
        """`old`: the window has passed for a tombstone. Nothing else has been settled for so long."""
        expected = Reply("NONE" if self.model.status == "none" else "KEPT")
        if old and self.model.status == "deleted":
            self.model, expected = purge(self.model, RULES)
            self.model = self.model._replace(history=History())
        window_ms = 0 if expected.word == "PURGED" else LONG_MS
        assert (await self.drive.purge(window_ms=window_ms))[0] == expected.word

    async def trim(self, events: int) -> None:
        """What is kept of the past is nothing to the protocol."""
        word = "NONE" if self.model.gone else "OK"
        assert (await self.drive.trim(events=events))[0] == word

    # What time does

    async def expire(self) -> None:
        await self.drive.expire()
        self.model = self.model._replace(expired=True)

    async def evict(self, lease: Lease) -> None:
        count = int(self.model.lease == lease)
        token = self._lease(lease).token
        assert await self.drive.evict((self.drive.session, token)) == ["OK", str(count)]
        if count:
            self.model = self.model._replace(expired=True)

    async def pass_times(self) -> None:
        """Deadlines and scheduled messages that are ahead have passed, and what put it off."""
        for wait in self.model.waits:
            if wait.deadline == AHEAD:
                await self.drive.set_wait_due(_wait(wait.name))
        for one in self.model.inputs:
            if not one.due:
                await self.drive.make_due(one.n)
        if self.model.put_off:
            await self.drive.set_head(not_before=1)
        self.model = self.model._replace(
            put_off=False,
            inputs=tuple(one._replace(due=True) for one in self.model.inputs),
            waits=tuple(
                wait._replace(deadline=PASSED) if wait.deadline == AHEAD else wait
                for wait in self.model.waits
            ),
        )

    async def _put_off_for_long(self) -> None:
        """A back-off is short; in no example does it end by itself."""
        await self.drive.set_head(not_before=await self.drive.now() + LATER_MS)

    # Comparison

    async def compare(self) -> None:
        """Both hold the same, the model is sound, and so is what the model does not have."""
        check_session(self.model)
        drive = self.drive
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
        inbox, journal = (
            [int(one[0].split("-")[0]) for one in entries] for entries in found[11:13]
        )
        model = self.model
        assert _head_of(head) == self._model_head()
        assert where == self._model_indexes()
        assert owner == (self._lease(model.lease).token if model.lease else None)
        assert (stall is None) == (owner is None)
        assert alert is None or owner is not None
        now = await drive.now()
        work.pop("_", None)
        assert _inputs_of(work, now) == {
            one.n: (_sub(one.submission), one.kind, one.due, one.turn, one.group, one.key)
            for one in model.inputs
        }
        assert _waits_of(work, now) == {
            wait.name: (wait.kind, wait.deadline, wait.answer) for wait in model.waits
        }
        assert inbox == [one.n for one in model.inputs]
        ended = {_sub(one.submission): one.ending for one in model.receipts}
        receipts.pop("|", None)
        assert {name: value.split("|")[4] for name, value in receipts.items()} == ended
        assert {one for one in found[13] if one != "|"} == {n for n, end in ended.items() if end}
        if head:
            # Of the life before, the events that its end wrote may still be there.
            first = min([int(head["first_seq"]), *journal])
            assert journal == list(range(first, int(head["seq"]) + 1))

    async def every_key_is_owned(self) -> None:
        """Nothing is left that nobody removes; of a session that is gone, what its end keeps."""
        keys = self.drive.fleet.keys
        names = [text(key) for key in await self.drive.executor.command("KEYS", "*")]
        owners = {name: keys.owner_of(name) for name in names}
        assert None not in owners.values(), owners
        left = {owner.name for owner in owners.values() if owner and owner.kind == "session"}
        match self.model.status:
            case "none":
                assert not left
            case "deleted":
                assert left <= {"head", "journal", "receipts", "settled"}
            case _:
                assert left <= set(SESSION_NAMES)

    def _model_head(self) -> dict[str, object]:
        model = self.model
        if model.status == "none":
            return {}
        released = model.released and self._lease(model.released).token
        return {
            "status": model.status,
            "life": model.life,
            "fence": model.fence,
            "rev": model.revision,
            "n": model.position,
            "turns": model.turns,
            "turn": _turn(model.turn),
            "parked": model.parked,
            "control": model.control,
            "attempts": model.attempts,
            "attempts0": model.attempts_before,
            "batch": model.batch,
            "used_nonce": f"nonce-{model.used_nonce}" if model.used_nonce else "",
            "last_rel": released or "",
            "commit_id": f"k{model.commit_id[0]}" if model.commit_id else "",
        }

    def _model_indexes(self) -> set[str]:
        model = self.model
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
    numbers = ("life", "fence", "rev", "n", "turns", "attempts", "attempts0", "batch")
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


def _numbers(entries: list[Any]) -> list[int]:
    """A stream's ids."""
    return [int(entry.split("-")[0]) for entry, _ in entries]


def _sub(submission: int) -> str:
    return f"m{submission}"


def _wait(name: int) -> str:
    return f"w{name}"


def _turn(turn: int) -> str:
    return f"t_{turn}" if turn else ""


def _number(turn: str) -> int:
    return int(turn.removeprefix("t_") or 0)
