"""A worker acted by a test: it drives the lease store one commit at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from changeover_shared._checkpoint import Checkpoint, encode_checkpoint
from changeover_shared._events import (
    AssistantSaid,
    Delta,
    Event,
    Failure,
    ModelChanged,
    SessionClosed,
    SessionConfigured,
    StepCompleted,
    StepStarted,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    Warned,
)
from changeover_shared._identifiers import new_incarnation, new_nonce
from changeover_shared._items import AssistantMessage, Usage, UserMessage, encode_item
from changeover_shared._results import TurnRecord
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Commit, Committed, Grant
from changeover_shared._words import CommitKind, Ending, Next, StepEnding

TTL_MS = 30_000
USAGE = Usage(input_tokens=5, output_tokens=2)


class Acting:
    """One worker that holds what the test tells it to hold."""

    def __init__(self, store: LeaseStore, name: str = "a") -> None:
        self._store = store
        self.incarnation = new_incarnation(name)

    async def take(self, session_id: str) -> Held:
        """Claim a session that is ready."""
        head = await self._store.read_head(session_id)
        assert head is not None, f"{session_id} does not exist"
        partition = self._store.keys.of(session_id).partition
        await self._store.peek(partition, [head.route], window=8)
        (granted,) = await self._store.claim(
            partition,
            head.route,
            [session_id],
            incarnation=self.incarnation,
            nonce=new_nonce(),
            ttl_ms=TTL_MS,
            max_step_ms=600_000,
            not_after_ms=self._store.clock.now_ms() + 5_000,
        )
        assert isinstance(granted, Grant), f"{session_id} was not granted: {granted}"
        return Held(self._store, granted)

    async def answer(self, session_id: str, text: str) -> None:
        """Take a session, answer what waits first, and give it back."""
        held = await self.take(session_id)
        await held.start()
        await held.stream(text)
        await held.say(text)
        await held.complete(text)


class Held:
    """One grant, and the turn that it runs."""

    def __init__(self, store: LeaseStore, grant: Grant) -> None:
        self._store = store
        self.grant = grant
        self.turn = grant.head.turn
        self._rev = grant.head.rev
        self._turns = grant.head.turns
        self._batch = 0
        self._commits = 0
        self._step = 0
        self._taken: tuple[str, ...] = ()
        self._streamed: tuple[int, ...] = ()

    async def start(self) -> None:
        """Open a turn with the first input that waits."""
        work = await self._store.read_work(self.grant.lease.session_id)
        first = work.open_inputs(self._store.clock.now_ms())[0]
        self._taken = (first.submission_id,)
        self.turn = f"t_{self._turns + 1}"
        head = self.grant.head
        await self._commit(
            CommitKind.START,
            take=(first.n,),
            items=(encode_item(UserMessage(text="?", submission_id=first.submission_id)),),
            events=(
                SessionConfigured(agent=head.agent, queue=head.agent, model="main"),
                TurnStarted(submission_ids=self._taken, turn_id=self.turn),
            ),
        )

    async def stream(self, *texts: str) -> None:
        """Begin a model step and stream some text."""
        self._batch += 1
        self._step += 1
        events: Sequence[Event] = (
            StepStarted(index=0, model="main", **self._stamp()),
            *(Delta(text=text, **self._stamp()) for text in texts),
        )
        done = await self._store.append(self.grant.lease, self._batch, events)
        self._streamed = tuple(done.first_seq + 1 + i for i in range(len(texts)))

    async def warn(self, code: str) -> None:
        """Tell people something that belongs to no turn."""
        self._batch += 1
        await self._store.append(self.grant.lease, self._batch, (Warned(code=code),))

    async def say(self, text: str) -> None:
        """Commit the step's text; its streamed pieces leave the journal."""
        await self._commit(
            CommitKind.STEP,
            progress=True,
            items=(encode_item(AssistantMessage(text=text)),),
            events=(
                AssistantSaid(text=text, **self._stamp()),
                StepCompleted(index=0, ending=StepEnding.COMPLETED, usage=USAGE, **self._stamp()),
            ),
            drop_seqs=self._streamed,
        )

    async def complete(self, text: str, *, next: Next = Next.RELEASE) -> None:
        """End the turn with an answer."""
        event = TurnCompleted(submission_ids=self._taken, turn_id=self.turn, text=text, usage=USAGE)
        await self._end("completed", event, text=text, next=next)

    async def fail(self, message: str) -> None:
        """End the turn with an error."""
        failure = Failure(kind="provider_auth", message=message)
        event = TurnFailed(submission_ids=self._taken, turn_id=self.turn, error=failure)
        await self._end("failed", event, error=failure)

    async def abort(self) -> None:
        """End the turn because of an interrupt."""
        event = TurnAborted(submission_ids=self._taken, turn_id=self.turn, reason="interrupt")
        await self._end("aborted", event)

    async def change_model(self, model: str) -> None:
        """End a turn that a `set_model` opened."""
        event = ModelChanged(model=model, submission_id=self._taken[0], turn_id=self.turn)
        await self._end("completed", event)

    async def close(self) -> None:
        """End a turn that a `close` opened, and the session with it."""
        event = SessionClosed(submission_id=self._taken[0], turn_id=self.turn)
        await self._end("completed", event, next=Next.CLOSE)

    async def _end(
        self,
        ending: Literal["completed", "failed", "aborted"],
        event: Event,
        *,
        text: str = "",
        error: Failure | None = None,
        next: Next = Next.RELEASE,
    ) -> None:
        record = TurnRecord(
            turn_id=self.turn,
            submission_ids=self._taken,
            ending=Ending(ending),
            text=text,
            error=error,
            usage=USAGE,
            steps=1,
        )
        await self._commit(
            CommitKind.END,
            end=ending,
            progress=True,
            events=(event,),
            turn_record=record.model_dump_json(),
            next=next,
        )
        self._turns += 1

    async def _commit(
        self,
        kind: CommitKind,
        *,
        end: Literal["", "completed", "failed", "aborted"] = "",
        take: tuple[int, ...] = (),
        items: tuple[str, ...] = (),
        events: tuple[Event, ...] = (),
        drop_seqs: tuple[int, ...] = (),
        turn_record: str = "",
        progress: bool = False,
        next: Next = Next.HOLD,
    ) -> None:
        self._commits += 1
        lease = self.grant.lease
        done = await self._store.commit(
            lease,
            Commit(
                commit_id=f"{lease.nonce}:{self._commits}",
                rev=self._rev,
                turn=self.turn,
                kind=kind,
                checkpoint=encode_checkpoint(Checkpoint(session_id=lease.session_id, model="main")),
                next=next,
                take=take,
                end=end,
                progress=progress,
                items=items,
                events=events,
                drop_seqs=drop_seqs,
                turn_record=turn_record,
            ),
        )
        assert isinstance(done, Committed), f"the commit was refused: {done}"
        self._rev = done.rev

    def _stamp(self) -> dict[str, str]:
        return {
            "submission_id": self._taken[0],
            "turn_id": self.turn,
            "step_id": f"{self.turn}:{self._step}",
        }
