"""The client: everything that an application asks of sessions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Unpack

from changeover._answers import cancelled_of, interrupted_of, not_completed, receipt_of
from changeover._chunks import AsyncItems, aiter_chunks, checked_count
from changeover._follow import Follower
from changeover._pages import After, checked_after
from changeover._planner import Planner
from changeover._submission import (
    Message,
    Options,
    checked_reason,
    message_submit,
    op_submit,
    submission,
)
from changeover._submit_many import submit_chunk
from changeover._wait import wait_for, wait_for_many
from changeover_shared._errors import Closed, Deleted, StoreUnavailable
from changeover_shared._events import Event
from changeover_shared._identifiers import identifier
from changeover_shared._ops import (
    CloseOp,
    CompactOp,
    InterruptOp,
    ResumeSessionOp,
    RollbackOp,
    SetModelOp,
)
from changeover_shared._results import Cancelled, Interrupted, Outcome, Receipt, Refused
from changeover_shared._store.records import NoTurn, Submit, Submitted
from changeover_shared._tracing import submitting
from changeover_shared._units import Duration, duration
from changeover_shared._words import Ending


class Client(Planner):
    """Send messages to sessions and read what they do. One client serves a whole process.

    Connects with the first call, or with the start of the `with` block, and raises
    `StoreUnavailable` at once when Redis is away. Everything is checked before it is sent:
    `Invalid` and `TooLarge` mean that nothing was.
    """

    async def submit(
        self, session: str, message: str | Message, **options: Unpack[Options]
    ) -> Receipt:
        """Accept one message durably. When this returns, it ends exactly once.

        Safe to repeat with the same `id`. Raises `Busy`, `Closed`, `Deleted`, `IdReused`,
        `IdExpired`, and `StoreUnavailable` or `NotDurable`, whose `submission_id` is the one to
        repeat with.
        """
        wanted = submission(session, message, options)
        with submitting(session, wanted.id):
            return await self._send(message_submit(wanted, self._settings))

    def submit_many(
        self, items: AsyncItems, *, in_flight: int = 1000
    ) -> AsyncGenerator[Receipt | Refused]:
        """Submit any number of messages; answers in their order, one each.

        A refused one is answered as `Refused` and stops no other. Repeating the whole with the
        same ids repeats nothing.
        """
        return self._submit_many(items, checked_count(in_flight))

    async def run(
        self,
        session: str,
        message: str | Message,
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109 - it leaves the turn running
        **options: Unpack[Options],
    ) -> Outcome:
        """Submit and wait for the answer.

        Raises `TurnFailed` or another `NotCompleted`, with `.outcome`, for any other ending, and
        `WaitTimeout` once `timeout` has passed: the turn goes on.
        """
        timeout_s = _seconds(timeout)
        receipt = await self.submit(session, message, **options)
        pair = (receipt.session_id, receipt.submission_id)
        outcome = await wait_for(await self._opened(), pair, timeout_s)
        if outcome.ending is not Ending.COMPLETED:
            raise not_completed(outcome)
        return outcome

    def stream(
        self, session: str, message: str | Message, **options: Unpack[Options]
    ) -> AsyncGenerator[Event]:
        """Submit, then follow until that submission has ended."""
        submit = message_submit(submission(session, message, options), self._settings)
        return self._stream(submit)

    def follow(
        self, session: str, *, after: After = "now", until: str | None = None
    ) -> AsyncGenerator[Event]:
        """Follow a session's journal after an event's number, each event once and in order.

        Reconnects by itself at the last number. What retention has taken, or a failover of the
        server lost, is told as a `Gap`.
        With `until`, a submission's id, it ends with that submission, even one that ended long
        ago; else when a closed session has nothing more to tell. Raises `UnknownSession`,
        `UnknownSubmission`, and `StoreUnavailable` before the first event only.
        """
        session_id = identifier(session, field="session")
        until_id = None if until is None else identifier(until, field="until")
        return self._follow(session_id, checked_after(after), until_id)

    async def wait(
        self,
        session: str,
        submission_id: str,
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109 - it leaves the work running
    ) -> Outcome:
        """Wait for a submission's ending, whatever it is. Raises `WaitTimeout`; the work goes on.

        Raises `UnknownSession` and `UnknownSubmission`. An outage of Redis is ridden out for
        half a minute.
        """
        pair = (identifier(session, field="session"), identifier(submission_id, field="id"))
        timeout_s = _seconds(timeout)
        return await wait_for(await self._opened(), pair, timeout_s)

    def wait_many(
        self, receipts: Iterable[Receipt], *, timeout: Duration | None = None
    ) -> AsyncGenerator[Outcome]:
        """Yield each submission's outcome once, as they end."""
        return self._wait_many(receipts, _seconds(timeout))

    async def interrupt(
        self, session: str, *, turn: str | None = None, reason: str = "", id: str | None = None
    ) -> Interrupted:
        """Stop the running turn, or the named one and no other. `.answer` says what came of it.

        No turn is no error. Raises `UnknownSession`.
        """
        target = "" if turn is None else identifier(turn, field="turn")
        submit = op_submit(
            session, InterruptOp(reason=checked_reason(reason)), submission_id=id, target=target
        )
        store = await self._opened()
        try:
            found: Submitted | NoTurn = await store.submit(submit)
        except (Closed, Deleted):
            found = NoTurn("")
        return interrupted_of(submit, found)

    async def cancel(self, session: str, submission_id: str) -> Cancelled:
        """Take a waiting submission back. One that runs or has ended is left as it is.

        `.answer` says what came of it; to stop a running one, interrupt its turn.
        """
        session_id = identifier(session, field="session")
        target = identifier(submission_id, field="id")
        store = await self._opened()
        found = await store.cancel(session_id, target)
        return cancelled_of(session_id, target, found)

    async def set_model(self, session: str, model: str, *, id: str | None = None) -> Receipt:
        """Use another model of the app once what waits before is done. Raises `UnknownSession`."""
        op = SetModelOp(model=identifier(model, field="model"))
        return await self._send(op_submit(session, op, submission_id=id))

    async def resume_session(self, session: str, target: str, *, id: str | None = None) -> Receipt:
        """Ask those who follow a session to go on with another one, whose context they are told.

        The other one is not opened. If it does not exist, or is another tenant's, the submission
        ends as failed, kind `unknown_session`.
        """
        op = ResumeSessionOp(target=identifier(target, field="target"))
        return await self._send(op_submit(session, op, submission_id=id))

    async def compact(self, session: str, *, id: str | None = None) -> Receipt:
        """Replace the older part of what the model is shown by a summary, once what waits before
        is done. The transcript stays. Raises `UnknownSession`."""
        return await self._send(op_submit(session, CompactOp(), submission_id=id))

    async def rollback(self, session: str, *, to: str, id: str | None = None) -> Receipt:
        """Take a finished turn and all later ones out of what the model is shown, once what waits
        before is done. The transcript stays, and so does what tools have done.

        The submission fails, and changes nothing, for a turn that is not finished, that was
        rolled back before, or that a summary has replaced. Raises `UnknownSession`.
        """
        op = RollbackOp(to=identifier(to, field="to"))
        return await self._send(op_submit(session, op, submission_id=id))

    async def close_session(
        self, session: str, *, reason: str = "", id: str | None = None
    ) -> Receipt:
        """End a session after what waits before; what comes later is cancelled or refused."""
        op = CloseOp(reason=checked_reason(reason))
        return await self._send(op_submit(session, op, submission_id=id))

    async def delete(self, session: str, *, reason: str = "") -> bool:
        """Delete a session with all it holds: what is open ends as cancelled, and its worker is
        refused from now on. False when there is none.

        Its journal and its receipts stay for the deduplication window; a later message to the id
        begins a new session. May be repeated.
        """
        session_id = identifier(session, field="session")
        store = await self._opened()
        return await store.upkeep.delete(session_id, reason=checked_reason(reason))

    async def _send(self, submit: Submit) -> Receipt:
        store = await self._opened()
        found = await store.submit(submit)
        assert isinstance(found, Submitted), "only a control is answered without a receipt"
        return receipt_of(submit, found)

    async def _submit_many(
        self, items: AsyncItems, in_flight: int
    ) -> AsyncGenerator[Receipt | Refused]:
        store = await self._opened()
        async for chunk in aiter_chunks(items, in_flight):
            for answer in await submit_chunk(store, self._settings, chunk):
                yield answer

    async def _stream(self, submit: Submit) -> AsyncGenerator[Event]:
        receipt = await self._send(submit)
        follower = Follower(await self._opened(), submit.session_id, submit.submission_id)
        try:
            async for event in follower.events(receipt.seq):
                yield event
        except StoreUnavailable as error:
            lost = StoreUnavailable(reason=error.reason, submission_id=submit.submission_id)
            raise lost from error

    async def _follow(
        self, session_id: str, after: After, until: str | None
    ) -> AsyncGenerator[Event]:
        follower = Follower(await self._opened(), session_id, until)
        async for event in follower.events(after):
            yield event

    async def _wait_many(
        self, receipts: Iterable[Receipt], timeout_s: float | None
    ) -> AsyncGenerator[Outcome]:
        async for outcome in wait_for_many(await self._opened(), receipts, timeout_s):
            yield outcome


def _seconds(timeout: Duration | None) -> float | None:
    return None if timeout is None else duration(timeout, field="timeout").total_seconds()
