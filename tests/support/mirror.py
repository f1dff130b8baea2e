"""The real scripts and the model side by side: each request goes to both, and both must agree."""

from __future__ import annotations

from typing import Any

from changeover_shared._events import Event
from changeover_shared._store import records
from changeover_shared._words import SUSPECT_AFTER, CommitKind, GiveUp, Next
from tests.protocol_model.invariants import check_session, check_step
from tests.protocol_model.requests import (
    Append,
    Cancel,
    Claim,
    Commit,
    Delete,
    Redrive,
    Reply,
    Request,
    Rules,
    Stop,
    Submit,
)
from tests.protocol_model.requests import GiveUp as GiveUpRequest
from tests.protocol_model.running import run_script
from tests.protocol_model.session import AHEAD, PASSED, History, Lease, Session
from tests.protocol_model.worker_scripts import defer, purge, reap, refused_write
from tests.support.driving import LATER_MS, Driver
from tests.support.likeness import compare, lease_record, submission_name, turn_name, wait_name

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
                reply = await self.drive.cancel(
                    submission_name(asked.target), submission_name(asked.submission)
                )
                return Reply(reply[0], reply[1] if reply[0] == "ENDED" else "")
            case Delete():
                return Reply((await self.drive.delete(life=asked.life))[0])
            case Stop():
                return Reply((await self.drive.stop(number=asked.number))[0])
            case Redrive(everything=True):
                return Reply((await self.drive.dead_letter(number=asked.number))[0])
            case Redrive():
                return Reply((await self.drive.redrive(asked.skip, number=asked.number))[0])
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
                return Reply(
                    (await self.drive.append(lease_record(self.drive, asked.lease), asked.batch))[0]
                )
            case Commit():
                reply = await self._commit(asked)
                return Reply(reply[0], reply[1] if reply[0] in ("OK", "REPLAY") else "")
            case GiveUpRequest():
                lease = lease_record(self.drive, asked.lease)
                reply = await self.drive.give_up(lease, GiveUp(asked.reason))
                if self.model.put_off:
                    await self._put_off_for_long()
                return Reply(reply[0])

    async def _submit(self, asked: Submit) -> list[Any]:
        target = wait_name(asked.target) if asked.cls == "answer" else turn_name(asked.target)
        due_ms = 0 if asked.due else await self.drive.now() + LATER_MS
        quiet = 0 if asked.due else LATER_MS
        return await self.drive.submit(
            submission_name(asked.submission),
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
            records.NewWait(wait_name(one.name), one.kind, later if one.deadline else 0)
            for one in asked.opens
        )
        request = records.Commit(
            commit_id=f"k{asked.commit_id[0]}",
            rev=asked.revision,
            turn=turn_name(asked.turn),
            kind=CommitKind(asked.kind),
            checkpoint=asked.checkpoint,
            next=Next(asked.next),
            take=asked.take,
            consume=tuple((wait_name(name), answer) for name, answer in asked.consume),
            closes=tuple(wait_name(name) for name in asked.closes),
            waits=opened,
            end=asked.finish,  # type: ignore[arg-type]
            progress=asked.progress,
            events=_told(asked),
        )
        return await self.drive.committing(lease_record(self.drive, asked.lease), request)

    async def renew(self, lease: Lease) -> None:
        refused = refused_write(self.model, lease, RULES).replace("DELETED", "GONE")
        (answer,) = await self.drive.renew(lease_record(self.drive, lease), ttl_ms=LONG_MS)
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
        """`old`: the window has passed for a tombstone. Nothing else was settled so long ago."""
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
        token = lease_record(self.drive, lease).token
        assert await self.drive.evict((self.drive.session, token)) == ["OK", str(count)]
        if count:
            self.model = self.model._replace(expired=True)

    async def pass_times(self) -> None:
        """Deadlines and scheduled messages that are ahead have passed, and what put it off."""
        for wait in self.model.waits:
            if wait.deadline == AHEAD:
                await self.drive.set_wait_due(wait_name(wait.name))
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

    async def compare(self) -> None:
        """Both hold the same, the model is sound, and so is what the model does not have."""
        check_session(self.model)
        await compare(self.drive, self.model)


def _told(asked: Commit) -> tuple[Event, ...]:
    """The events that the script asks for: of a rollback no abort is taken without its own."""
    if asked.finish == "aborted":
        return (Event(type="context_rolled_back"),)
    return (Event(type="step_completed"),) if asked.kind == "step" else ()
