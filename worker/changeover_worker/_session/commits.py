"""From a draft to a commit that is durable, or to the next best one.

A refusal under a standing lease is no error: an interrupt that came first turns a completion into
an abort, what is too big fails its turn, and what the store knows better is read again.
"""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError
from structlog.typing import FilteringBoundLogger

from changeover_shared._events import Failure, ToolCallEnd, TurnParked
from changeover_shared._ops import InterruptOp, decode_op
from changeover_shared._results import TurnRecord, shown_time
from changeover_shared._settings import Settings
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import CommitRefused, Committed, Head
from changeover_shared._words import CommitKind, Ending, Next, Status
from changeover_worker._agent import Agent
from changeover_worker._readable import error_text
from changeover_worker._session.held import Drain, Held
from changeover_worker._session.loaded import Loaded
from changeover_worker._session.recorder import Recorder
from changeover_worker._session.signals import Moment, reached
from changeover_worker._session.standstill import Standstill
from changeover_worker._session.watching import UNWATCHED, SessionWatch
from changeover_worker._tools.threads import WAIT_S
from changeover_worker._tools.tool import Tool
from changeover_worker._turn.at_once import refuse
from changeover_worker._turn.draft import NO_TAIL, Draft, Tail
from changeover_worker._turn.ending import abort, fail
from changeover_worker._turn.execution import open_calls, open_execution
from changeover_worker._turn.rolling_back import aborted_without
from changeover_worker._turn.streamed import forget_streamed

INTERRUPTED: Final = "interrupted"
"""The reason of an interrupt that gave none."""
QUANTUM: Final = 16
"""How many turns in a row a session may take while others wait."""
SLACK_MS: Final = 60_000
"""What a step may take beyond its own time-outs before its worker counts as hung."""


class Stale(Exception):
    """The store knows better: nothing was written, the lease stands, read again."""


class Commits:
    """Writes a session's drafts in order and keeps `Loaded` in step with them."""

    def __init__(
        self,
        store: LeaseStore,
        settings: Settings,
        log: FilteringBoundLogger,
        *,
        recorder: Recorder,
        held: Held,
        loaded: Loaded,
        agent: Agent,
        watch: SessionWatch = UNWATCHED,
    ) -> None:
        self._store = store
        self._step_ms = round(settings.step_timeout.total_seconds() * 1000)
        self._standstill = Standstill(settings.no_progress_timeout, held.since)
        self._log = log
        self._recorder = recorder
        self._held = held
        self._loaded = loaded
        self._agent = agent
        self.watch = watch
        self.written = 0
        self.turns = 0
        self.failed_turns = 0
        self.gone: Status | None = None
        """What became of the session with the commit that gave the lease up."""

    async def write(self, draft: Draft, tail: Tail = NO_TAIL) -> None:
        """Commit `draft`, or what has to be committed instead; `tail` is its model step's.

        Raises `Stale`, and `LeaseError` when nothing may be written any more.
        """
        try:
            refused = await self._try(draft)
        except (ValueError, TypeError, RecursionError) as error:
            self._log.exception("warning", code="unwritable", session=self._loaded.session_id)
            instead: Draft | None = self._clean(draft, error)
            word = "UNWRITABLE"
        else:
            if refused is None:
                return
            instead = await self._instead(draft, refused, tail)
            word = refused.word
        if instead is None or await self._try(instead) is not None:
            raise Stale(word)

    def has_time_to_ask_again(self, pause_ms: int) -> bool:
        """Whether another model step, after a pause, ends before the session counts as stuck."""
        return self._standstill.leaves_time_for(self._step_ms + SLACK_MS, behind_ms=pause_ms)

    async def aborted(self, tail: Tail = NO_TAIL) -> Draft:
        """The end that the control of the open turn asks for: an abort, and with a rollback the
        turn leaves the context as well."""
        head = await self._store.read_head(self._loaded.session_id)
        before, now_ms = self._loaded.checkpoint, self._store.clock.now_ms()
        draft = abort(before, _reason(head), now_ms=now_ms, tail=tail)
        if head is None or (head.ctl_turn, head.ctl_kind) != (draft.turn, "rollback"):
            return draft
        return aborted_without(draft, before, self._loaded.prefix, self._loaded.items)

    async def _instead(self, draft: Draft, refused: CommitRefused, tail: Tail) -> Draft | None:
        before, now_ms = self._loaded.checkpoint, self._store.clock.now_ms()
        if before.execution is None:
            return None
        if refused.word == "INPUT":
            return draft.untaken
        if refused.word == "CONTROL":
            return draft.interim or await self.aborted(tail)
        if refused.word == "TOO_BIG" and draft.end is not Ending.FAILED:
            size, limit = (*refused.detail, "?", "?")[:2]
            failure = Failure(
                kind="too_big",
                message=f"the step came to {size} bytes, one commit takes {limit}; it was dropped",
            )
            return fail(before, failure, now_ms=now_ms)
        return None

    def _clean(self, draft: Draft, error: Exception) -> Draft:
        """The end of a turn whose next commit has no form that can be written."""
        before, now_ms = self._loaded.checkpoint, self._store.clock.now_ms()
        said = error_text(f"{type(error).__name__}: {error}")
        failure = Failure(kind="unwritable", message=f"what came next cannot be written: {said}")
        if before.execution is not None:
            return fail(before, failure, now_ms=now_ms)
        begun = draft.record or open_execution(draft.checkpoint)
        return refuse(
            before,
            draft.take,
            begun.submission_ids,
            failure,
            reply_to=begun.reply_to,
            turn_id=draft.turn,
            now_ms=now_ms,
        )

    async def _try(self, draft: Draft) -> CommitRefused | None:
        session_id = self._loaded.session_id
        ending = "" if draft.end is None else draft.end.value
        draft = draft.traced(self.watch.sees(draft.checkpoint.execution, ending))
        draft = forget_streamed(draft, self._store.clock.now_ms()).placed_after(
            self._loaded.transcript_n
        )
        commit = draft.to_commit(
            rev=self._loaded.rev,
            max_step_ms=self._max_step_ms(draft),
            next=self._next(draft),
            quantum_left=self.turns + 1 < QUANTUM,
        )
        await reached(Moment.BEFORE_COMMIT, session_id, draft.kind)
        answer = await self._recorder.commit(commit)
        await reached(Moment.AFTER_COMMIT, session_id, draft.kind)
        if isinstance(answer, CommitRefused):
            if answer.word == "INPUT":
                self._loaded.doubt_arrivals()
            if answer.word == "REWOUND":
                # A failover forgot what had been acknowledged: people should know.
                self._log.warning(
                    "session_rewound",
                    session=session_id,
                    rev=self._loaded.rev,
                    stored=int(answer.detail[0]),
                )
            self._log.debug(
                "write_refused",
                script="commit",
                word=answer.word,
                session=session_id,
                fence=self._held.lease.fence,
                current=None,
            )
            return answer
        self._follow(draft, answer)
        if self.gone is Status.PARKED:
            await self._say_parked(draft)
        return None

    def _follow(self, draft: Draft, answer: Committed) -> None:
        self._loaded.follow(draft, answer)
        self.written += 1
        if draft.progress:
            self._standstill.end()
        if not answer.ctl_kind:
            self._held.seen_epoch = answer.ctl_epoch
        self._held.note_control(answer.ctl_epoch)
        if draft.record is not None:
            self._count(draft.record)
        if draft.kind is CommitKind.RECOVER:
            self._log_unknown_tools(draft)
        if not answer.held:
            self.gone = answer.status

    async def _say_parked(self, draft: Draft) -> None:
        session_id = self._loaded.session_id
        for event in draft.events:
            if isinstance(event, TurnParked):
                self._log.info(
                    "session_parked",
                    session=session_id,
                    reason=event.reason,
                    until=None if event.until_ms is None else shown_time(event.until_ms),
                )
                await reached(Moment.PARKED, session_id, event.reason)

    def _next(self, draft: Draft) -> Next:
        leaves = self._held.moving or self._held.drain_level is not Drain.NO
        return Next.RELEASE if leaves and draft.next is Next.AUTO else draft.next

    def _max_step_ms(self, draft: Draft) -> int:
        known = self._agent.toolbox
        execution = draft.checkpoint.execution
        calls = open_calls(execution) if execution else ()
        spans = [_span_ms(known[call.name]) for call in calls if call.name in known]
        return max(draft.span_ms, *spans, 0 if spans else self._step_ms) + SLACK_MS

    def _count(self, record: TurnRecord) -> None:
        self.turns += 1
        self._held.turn_ended()
        self.failed_turns += record.ending is Ending.FAILED
        self._log.info(
            "turn_ended",
            session=self._loaded.session_id,
            turn=record.turn_id,
            agent=self._loaded.agent,
            ending=record.ending.value,
            steps=record.steps,
            tools=record.tool_calls,
            tokens=record.usage.total_tokens,
            ms=record.finished_at_ms - record.started_at_ms,
        )

    def _log_unknown_tools(self, draft: Draft) -> None:
        for event in draft.events:
            if isinstance(event, ToolCallEnd) and event.unknown:
                self._log.warning(
                    "tool_unknown",
                    session=self._loaded.session_id,
                    call=event.call_id,
                    tool=event.name,
                )


def _reason(head: Head | None) -> str:
    """The reason that came with an interrupt."""
    try:
        op = decode_op(head.raw.get("ctl_body", "") if head else "")
    except ValidationError:
        return INTERRUPTED
    return (isinstance(op, InterruptOp) and op.reason) or INTERRUPTED


def _span_ms(tool: Tool) -> int:
    """How long a call of a tool may take, with its wait for a thread."""
    wait_s = WAIT_S if tool.threaded else 0.0
    return round((wait_s + tool.timeout.total_seconds()) * 1000)
