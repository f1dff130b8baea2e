"""A turn of a handler: run from the top, its finished calls answered from the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from changeover_shared._checkpoint import Execution
from changeover_shared._errors import ToolError
from changeover_shared._events import Failure
from changeover_shared._items import AnyItem, StepRecord, UserMessage
from changeover_worker._handler import Handler, Turn
from changeover_worker._session.handler_calls import HandlerCalls
from changeover_worker._session.handler_run import Calls, HandlerRun, Returned
from changeover_worker._session.model_step import failure_of
from changeover_worker._session.running import Running
from changeover_worker._tools.output import as_json
from changeover_worker._turn.changed_kind import taken_up
from changeover_worker._turn.draft import Draft, Setup
from changeover_worker._turn.ending import fail
from changeover_worker._turn.handler import finished, recovered
from changeover_worker._turn.replay import Mismatch, Replay
from changeover_worker._turn.start import settle_model


class HandlerTurn:
    """Drives the open turn of a session that has a `Handler`."""

    def __init__(self, running: Running, setup: Setup, handler: Handler) -> None:
        self._running = running
        self._setup = setup
        self._handler = handler

    async def recover(self, execution: Execution) -> None:
        """Record what a new holder finds; the handler is run by `go_on`."""
        run, loaded = self._running, self._running.loaded
        checkpoint, changed = settle_model(loaded.checkpoint, self._setup, execution.turn_id)
        draft = taken_up(checkpoint, by_handler=True, takeover=loaded.taken_over) or recovered(
            checkpoint, takeover=loaded.taken_over
        )
        if draft is not None:
            await run.write(draft.after(changed))
            self._log_unknown(execution.turn_id, draft)

    async def go_on(self, execution: Execution) -> None:
        """Run the handler until it has ended, or as far as this worker goes with it."""
        run = self._running
        replay = Replay(
            (item for item in self._written(execution) if isinstance(item, StepRecord)),
            execution.handler_step,
        )
        calls = Calls(replay)
        turn = self._turn(execution, calls)
        async with HandlerRun(self._handler.function, turn, calls, run.held) as handler:
            carried = HandlerCalls(run, self._setup, calls)
            timeout_s = run.settings.step_timeout.total_seconds()
            while (asked := await handler.next_call(timeout_s)) is not None:
                await carried.carry_out(asked)
                if not carried.may_go_on:
                    return
        run.stop_if_lost()
        if not run.held.interrupted:
            await self._settle(execution, calls, handler.returned)

    async def _settle(self, execution: Execution, calls: Calls, returned: Returned | None) -> None:
        """Commit what the run came to; nothing if it was only unwound."""
        run = self._running
        checkpoint, now_ms = run.loaded.checkpoint, run.now_ms
        if calls.failure is not None:
            await run.write(fail(checkpoint, calls.failure, now_ms=now_ms))
        elif calls.mismatch:
            await self._quarantine(calls.mismatch)
        elif returned is not None and returned.error is not None:
            run.log.warning(
                "handler_failed",
                session=run.loaded.session_id,
                turn=execution.turn_id,
                exc_info=returned.error,
            )
            failure = failure_of(returned.error, "handler")
            await run.write(fail(checkpoint, failure, now_ms=now_ms))
        elif returned is not None:
            try:
                calls.replay.end()
            except Mismatch as way:
                await self._quarantine(str(way))
            else:
                await run.write(self._finish(execution, returned.value))

    def _finish(self, execution: Execution, value: Any) -> Draft:
        checkpoint, now_ms = self._running.loaded.checkpoint, self._running.now_ms
        try:
            result = as_json(value, ran="the handler")
        except ToolError as error:
            return fail(checkpoint, Failure(kind="handler", message=str(error)), now_ms=now_ms)
        return finished(checkpoint, result, self._written(execution), now_ms=now_ms)

    async def _quarantine(self, way: str) -> None:
        """Stop the session: the code of its handler does not fit what the turn has recorded."""
        await self._running.quarantine(
            f"handler {self._handler.name!r} went another way than before: {way}; nothing was run; "
            "deploy code that makes the turn's calls in the recorded order; the turn stays open"
        )

    def _turn(self, execution: Execution, calls: Calls) -> Turn[Any]:
        run, loaded = self._running, self._running.loaded
        said = tuple(
            takewhile(lambda item: isinstance(item, UserMessage), self._written(execution))
        )
        last = execution.first_item + len(said) - 1
        if execution.first_item < loaded.checkpoint.context_from:
            # An agent began the turn and compacted it: what was asked stands before the cut.
            said = tuple(
                item
                for item in loaded.prefix
                if isinstance(item, UserMessage) and item.submission_id in execution.submission_ids
            )
        shown = loaded.shown()
        before = replace(shown, entries=tuple(e for e in shown.entries if e.n <= last), large={})
        inputs = tuple(item for item in said if isinstance(item, UserMessage))
        return Turn(
            session_id=loaded.session_id,
            tenant=loaded.tenant,
            turn_id=execution.turn_id,
            inputs=inputs or (UserMessage(text=""),),
            messages=before.items,
            context=loaded.context,
            metadata=loaded.checkpoint.metadata,
            resources=run.resources,
            calls=calls,
        )

    def _written(self, execution: Execution) -> Sequence[AnyItem]:
        """What the turn has written into the transcript."""
        loaded = self._running.loaded
        return loaded.items[max(0, execution.first_item - loaded.checkpoint.context_from) :]

    def _log_unknown(self, turn_id: str, draft: Draft) -> None:
        log, session_id = self._running.log, self._running.loaded.session_id
        for lost in draft.items:
            if isinstance(lost, StepRecord) and lost.unknown:
                log.warning("step_unknown", session=session_id, turn=turn_id, step=lost.name)
