"""What the turn machine is told and what it answers with: values, decided but not yet written."""

from __future__ import annotations

import secrets
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from changeover_shared._checkpoint import Checkpoint, encode_checkpoint
from changeover_shared._events import Event
from changeover_shared._items import AnyItem, Usage, UserMessage, encode_item
from changeover_shared._ops import TurnOp
from changeover_shared._results import TurnRecord
from changeover_shared._store.records import Commit, NewWait
from changeover_shared._words import CommitKind, Ending, Next
from changeover_worker._turn.budget import Limits
from changeover_worker._turn.execution import effects_ahead

_ENDS: Final[Mapping[Ending | None, Literal["", "completed", "failed", "aborted"]]] = {
    None: "",
    Ending.COMPLETED: "completed",
    Ending.FAILED: "failed",
    Ending.ABORTED: "aborted",
}


@dataclass(frozen=True, slots=True)
class Taken:
    """One input that a turn takes: its inbox position, its submission and what it asks for."""

    n: int
    submission_id: str
    op: TurnOp
    target: Mapping[str, str] | None = None
    """The context of the session that a `resume_session` names; None if there is none."""


@dataclass(frozen=True, slots=True)
class Folded:
    """A waiting message that ends with the turn before it: its inbox position and its item."""

    n: int
    submission_id: str
    message: UserMessage


@dataclass(frozen=True, slots=True)
class Setup:
    """What this worker's app says of a session's agent."""

    agent: str
    queue: str
    model: str
    """The agent's own model: used when the session has chosen none that is still registered."""
    models: Container[str]
    """The names that a session may choose."""
    asks: bool = True
    """Whether a message begins with a model step; a handler asks when it likes."""


@dataclass(frozen=True, slots=True)
class Onward:
    """How a turn goes on once nothing is pending."""

    step_id: str | None
    """The next step's id; None leaves the turn at the boundary, for another worker."""
    model: str
    limits: Limits
    steers: tuple[Taken, ...] = ()
    """Messages that the turn takes in with the next step; all of them may join."""

    def taking(self, steers: tuple[Taken, ...]) -> Onward:
        """The same with other steers."""
        return replace(self, steers=steers)

    def asking(self, model: str) -> Onward:
        """The same with another model."""
        return replace(self, model=model)


@dataclass(frozen=True, slots=True)
class Tail:
    """What a model step left behind when it ended."""

    events: tuple[Event, ...] = ()
    """Deltas that were accepted and are not in the journal yet."""
    seqs: tuple[int, ...] = ()
    """Where the step's other deltas lie in the journal."""
    usage: Usage = field(default_factory=Usage)
    """What the provider counted while streaming."""


NO_TAIL: Final = Tail()


@dataclass(frozen=True, slots=True)
class Draft:
    """One commit's content. `checkpoint` is the state after it."""

    kind: CommitKind
    turn: str
    checkpoint: Checkpoint
    progress: bool = False
    take: tuple[int, ...] = ()
    end: Ending | None = None
    next: Next = Next.HOLD
    items: tuple[AnyItem, ...] = ()
    events: tuple[Event, ...] = ()
    drop_seqs: tuple[int, ...] = ()
    record: TurnRecord | None = None
    waits: tuple[NewWait, ...] = ()
    """What the turn waits for from here on."""
    closes: tuple[str, ...] = ()
    """Waits that are over: their time has passed."""
    span_ms: int = 0
    """How long what follows may take, if it says so itself."""
    prefix: str = ""
    """The rewritten prefix of the context, under the checkpoint's `context_epoch`; '' leaves it."""

    interim: Draft | None = None
    """The same without the end, which an interrupt may forbid: what landed with it is kept."""
    untaken: Draft | None = None
    """The same without what it takes in, one of which may have been taken back meanwhile."""

    def after(self, events: tuple[Event, ...]) -> Draft:
        """The same with `events` written before its own."""
        if not events:
            return self
        return replace(
            self,
            events=events + self.events,
            interim=self.interim and self.interim.after(events),
            untaken=self.untaken and self.untaken.after(events),
        )

    def traced(self, trace: str) -> Draft:
        """The same with an open turn that names this span."""
        execution = self.checkpoint.execution
        if execution is None or execution.trace == trace:
            return self
        changed = execution.model_copy(update={"trace": trace})
        return replace(self, checkpoint=self.checkpoint.model_copy(update={"execution": changed}))

    def placed_after(self, transcript_n: int) -> Draft:
        """The same with its turn's record naming the items that the turn has written."""
        if self.record is None:
            return self
        last = transcript_n + len(self.items)
        first = self.record.first_item or last + 1
        placed = self.record.model_copy(update={"first_item": first, "last_item": last})
        return replace(self, record=placed)

    def to_commit(self, *, rev: int, max_step_ms: int, next: Next, quantum_left: bool) -> Commit:
        """Encode it as the commit that follows revision `rev`, under an id of its own."""
        return Commit(
            commit_id=secrets.token_hex(16),
            rev=rev,
            turn=self.turn,
            kind=self.kind,
            checkpoint=encode_checkpoint(self.checkpoint),
            next=next,
            take=self.take,
            end=_ENDS[self.end],
            progress=self.progress,
            items=tuple(encode_item(item) for item in self.items),
            events=self.events,
            drop_seqs=self.drop_seqs,
            waits=self.waits,
            closes=self.closes,
            context=self.prefix,
            context_epoch=self.checkpoint.context_epoch,
            keep_from=self.checkpoint.context_from if self.prefix else 0,
            turn_record=self.record.model_dump_json() if self.record else "",
            max_step_ms=max_step_ms,
            quantum_left=quantum_left,
            # A result's commit starts nothing that an earlier one has not allowed.
            durable=self.kind is not CommitKind.RESULT and effects_ahead(self.checkpoint),
        )


def ranges(seqs: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Ascending numbers as (first, last) runs."""
    runs: list[tuple[int, int]] = []
    for seq in seqs:
        if runs and seq == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    return tuple(runs)


def new_step_id(turn_id: str, index: int) -> str:
    """Name one attempt at a model step: `s_<turn>_<index>_<6 hex digits>`."""
    return f"s_{turn_id.removeprefix('t_')}_{index}_{secrets.token_hex(3)}"
