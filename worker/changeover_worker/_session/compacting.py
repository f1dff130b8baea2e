"""Compaction: a model writes a summary, and the context begins with it from there on.

By itself, before a model step whose request would be too large; there a failure costs a warning
and the turn goes on with what it has. As an op it is a turn of its own, which fails. In both the
summary is asked for again from the beginning if the session moves to another worker meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import Final

from changeover_shared._checkpoint import Checkpoint, Execution
from changeover_shared._events import ContextCompacted, Failure, Warned
from changeover_shared._items import Item, Usage, UserMessage
from changeover_worker._compaction import Compaction
from changeover_worker._models.gate import Limited
from changeover_worker._models.model import Emit, ModelRequest, ModelResponse
from changeover_worker._session.agent_calls import AgentCalls
from changeover_worker._session.asking import asked_of, note_end, pause_until, set_aside
from changeover_worker._session.limiting import SUMMARY, asked_within
from changeover_worker._session.model_step import StepEnd, ask
from changeover_worker._session.running import Running
from changeover_worker._session.unrecorded import Unrecorded
from changeover_worker._stopping import stop
from changeover_worker._turn.ending import done, fail
from changeover_worker._turn.execution import stamp
from changeover_worker._turn.retry import waited
from changeover_worker._turn.rewriting import (
    Cut,
    compacted,
    counted,
    cut,
    not_compacted,
    summarised,
    tokens,
    told,
)

ATTEMPTS: Final = 3
"""How often a model is asked for one summary."""
PAUSE_S: Final = 0.5
"""Before the second attempt; twice as long before the third."""
LONGEST_PAUSE_S: Final = 5.0
"""A provider that wants to be left alone for longer is not asked again."""


@dataclass(frozen=True, slots=True)
class _End:
    """How the question for a summary ended. With nothing else it was stopped."""

    prefix: tuple[Item, ...] = ()
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)
    asked: int = 0
    limited: Limited | None = None


class Compacting:
    """Keeps the context of one held session below its agent's limit."""

    def __init__(self, running: Running, calls: AgentCalls) -> None:
        self._running = running
        self._calls = calls
        self._warned = False

    async def if_needed(self, execution: Execution) -> bool:
        """Compact the context before a model step if it is too large; whether to ask now.

        False: a commit was written, or the session has to stop; read the next move again.
        """
        await self._warn_of_damage(execution)
        how = self._running.agent.compaction
        if how is None:
            return True
        before = self._tokens()
        if before <= max(how.at_tokens, self._running.loaded.checkpoint.compact_above):
            return True
        place = self._cut(execution, how)
        if place is None:
            return True
        end = await self._summary(execution, how, place)
        checkpoint = self._counted(end)
        if end.limited is not None:
            await set_aside(self._running, end.limited, checkpoint)
        elif end.failure is not None:
            await self._running.write(not_compacted(checkpoint, end.failure, before))
        elif end.prefix:
            await self._rewrite(checkpoint, place, end, before)
        else:
            await self._leave()
        return False

    async def go_on(self, execution: Execution) -> None:
        """Run the turn of a `compact` op."""
        run = self._running
        if execution.retry is not None:
            if await pause_until(run, execution.retry.until_ms):
                await run.write(waited(run.loaded.checkpoint))
            return
        how = run.agent.compaction or Compaction()
        before = self._tokens()
        place = self._cut(execution, how)
        if place is None:
            text = f"the context comes to {before} tokens; all of it is kept as it is"
            warned = Warned(code="nothing_to_compact", text=text, **stamp(execution))
            checkpoint = self._counted(_End())
            await run.write(done(checkpoint, now_ms=run.now_ms, events=(warned,)))
            return
        end = await self._summary(execution, how, place)
        checkpoint = self._counted(end)
        if end.limited is not None:
            await set_aside(run, end.limited, checkpoint)
        elif end.failure is not None:
            await run.write(fail(checkpoint, end.failure, now_ms=run.now_ms))
        elif end.prefix:
            await self._rewrite(checkpoint, place, end, before, ends=True)
        else:
            await self._leave()

    def _tokens(self) -> int:
        return self._calls.fixed_tokens() + tokens(self._running.loaded.shown().items)

    def _cut(self, execution: Execution, how: Compaction) -> Cut | None:
        loaded = self._running.loaded
        return cut(
            loaded.shown().entries,
            keep_tokens=how.keep_tokens,
            own=execution.submission_ids,
            end=loaded.transcript_n + 1,
        )

    def _counted(self, end: _End) -> Checkpoint:
        loaded = self._running.loaded
        takeover = loaded.taken_over
        return counted(loaded.checkpoint, asked=end.asked, usage=end.usage, takeover=takeover)

    async def _rewrite(
        self, checkpoint: Checkpoint, place: Cut, end: _End, before: int, *, ends: bool = False
    ) -> None:
        run = self._running
        replaced = tokens(entry.item for entry in place.older)
        said = ContextCompacted(
            before_tokens=before,
            after_tokens=before - replaced + tokens(end.prefix[:1]),
            usage=end.usage,
            **stamp(checkpoint.execution) if checkpoint.execution else {},
        )
        draft = compacted(checkpoint, place.first, end.prefix, said)
        if ends:
            last = done(draft.checkpoint, now_ms=run.now_ms, events=draft.events)
            draft = replace(last, prefix=draft.prefix)
        await run.write(draft)

    async def _leave(self) -> None:
        """Let go of a turn that was stopped; one that was interrupted is aborted by its loop."""
        self._running.stop_if_lost()
        if not self._running.held.interrupted:
            await self._running.hand_off()

    async def _warn_of_damage(self, execution: Execution) -> None:
        loaded = self._running.loaded
        what = loaded.damage or loaded.shown().flaw
        if not what or self._warned:
            return
        self._warned = True
        self._running.log.warning(
            "warning", code="context_damaged", session=loaded.session_id, text=what
        )
        text = f"what is stored of the context is damaged: {what}; the model is shown the rest"
        await self._running.recorder.record(
            Warned(code="context_damaged", text=text, **stamp(execution))
        )

    async def _summary(self, execution: Execution, how: Compaction, place: Cut) -> _End:
        """Ask for a summary until there is one, and within the time of one model step."""
        run = self._running
        until = time.monotonic() + run.settings.step_timeout.total_seconds()
        usage = Usage()
        for attempt in range(1, ATTEMPTS + 1):
            end = await self._asked(execution, how, place, until - time.monotonic())
            if end is None:
                return _End(usage=usage, asked=attempt)
            if end.limited is not None:
                return _End(usage=usage, asked=attempt - 1, limited=end.limited)
            usage += end.tail.usage
            if end.response is not None:
                found = summarised(place, end.response, run.loaded.shown().large)
                if isinstance(found, Failure):
                    return _End(failure=found, usage=usage, asked=attempt)
                return _End(found, usage=usage, asked=attempt)
            failure = end.why
            pause_s = _pause_s(failure, attempt, run.jitter())
            if not _may_repeat(failure, attempt) or time.monotonic() + pause_s >= until:
                break
            await run.held.changed_or(pause_s)
            if run.held.leaving:
                return _End(usage=usage, asked=attempt)
        return _End(failure=failure, usage=usage, asked=attempt)

    async def _asked(
        self, execution: Execution, how: Compaction, place: Cut, timeout_s: float
    ) -> StepEnd | None:
        """Ask once; None when the session had to stop, or is wanted elsewhere, meanwhile."""
        held = self._running.held
        if held.leaving:
            return None
        request = self._request(execution, how, place)
        name = how.model or str(self._running.loaded.checkpoint.model)

        async def question(emit: Emit) -> ModelResponse:
            return await asked_within(self._running, name, request, emit, part=SUMMARY)

        loop = asyncio.get_running_loop()
        asked = asked_of(self._running, execution, name)
        with self._running.watcher.asking(asked):
            asking = loop.create_task(ask(question, Unrecorded(), held, timeout_s=timeout_s))
            leaving = loop.create_task(held.changed_or(timeout_s))
            try:
                await asyncio.wait((asking, leaving), return_when=asyncio.FIRST_COMPLETED)
                if held.stopped or (held.leaving and not asking.done()):
                    return None
                end = await asking
            finally:
                await stop((asking, leaving))
            note_end(asked, end)
            return end

    def _request(self, execution: Execution, how: Compaction, place: Cut) -> ModelRequest:
        document = f"<conversation>\n{told(place.older)}\n</conversation>\n\nWrite the summary."
        return ModelRequest(
            instructions=how.instructions,
            items=(UserMessage(text=document),),
            session_id=self._running.loaded.session_id,
            turn_id=execution.turn_id,
        )


def _may_repeat(failure: Failure, attempt: int) -> bool:
    wanted_ms = failure.retry_after_ms or 0
    return failure.retryable and attempt < ATTEMPTS and wanted_ms <= LONGEST_PAUSE_S * 1000


def _pause_s(failure: Failure, attempt: int, jitter: float) -> float:
    scheduled = PAUSE_S * attempt * (1 + jitter) / 2
    return max(scheduled, (failure.retry_after_ms or 0) / 1000)
