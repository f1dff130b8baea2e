"""A turn of an agent: ask the model, run its calls, ask again, until it has answered."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial

from changeover_shared._checkpoint import Execution
from changeover_worker._models.model import ModelResponse
from changeover_worker._session.agent_calls import AgentCalls
from changeover_worker._session.asking import ask_for, asked_again, pause_until, set_aside
from changeover_worker._session.compacting import Compacting
from changeover_worker._session.folding import to_fold
from changeover_worker._session.held import Drain
from changeover_worker._session.inputs import waiting_steers
from changeover_worker._session.model_step import StepEnd
from changeover_worker._session.running import Running
from changeover_worker._session.signals import Moment, reached
from changeover_worker._session.tool_group import run_group
from changeover_worker._turn.changed_kind import taken_up
from changeover_worker._turn.draft import Onward, Setup
from changeover_worker._turn.ending import fail
from changeover_worker._turn.execution import open_calls
from changeover_worker._turn.recovery import Found, found, recover
from changeover_worker._turn.start import settle_model
from changeover_worker._turn.steps import answered, landed


class AgentTurn:
    """Drives the open turn of a session that has an `Agent`."""

    def __init__(self, running: Running, setup: Setup) -> None:
        self._running = running
        self._setup = setup
        self._calls = AgentCalls(running)
        self._compaction = Compacting(running, self._calls)

    async def go_on(self, execution: Execution) -> None:
        """Make the next move."""
        if execution.op == "compact":
            await self._compaction.go_on(execution)
        elif execution.step is not None:
            await self._ask(execution)
        elif open_calls(execution):
            await self._call(execution)
        else:
            await self.recover(execution)

    async def recover(self, execution: Execution) -> None:
        """Go on with a turn that is between two moves, as a new holder finds it."""
        run, loaded = self._running, self._running.loaded
        if execution.op == "compact":
            await self._compaction.go_on(execution)
            return
        taken = taken_up(loaded.checkpoint, by_handler=False, takeover=loaded.taken_over)
        if taken is not None:
            await run.write(taken)
            return
        retry = execution.retry if found(execution) is Found.PAUSE else None
        if retry and not await pause_until(run, retry.until_ms):
            return
        checkpoint, changed = settle_model(loaded.checkpoint, self._setup, execution.turn_id)
        onward = await self._onward(execution, execution.next_step)
        draft = recover(
            checkpoint,
            on_takeover=run.agent.on_takeover,
            onward=onward.asking(str(checkpoint.model)),
            now_ms=run.now_ms,
            takeover=loaded.taken_over,
            fold=await to_fold(run, execution),
        )
        if draft is not None:
            await run.write(draft.after(changed))

    async def _ask(self, execution: Execution) -> None:
        """One model step, from its question to the commit that ends it."""
        run = self._running
        if not run.commits.has_time_to_ask_again(0):
            # A summary that nobody answered has used it up. A new grant has all of it.
            await run.hand_off()
            return
        if not await self._compaction.if_needed(execution):
            return
        question = partial(self._calls.question, execution)
        model = str(run.loaded.checkpoint.model)
        end = await ask_for(run, execution, question, model=model)
        if run.held.interrupted:
            await run.abort(end.tail)
        elif self._is_given_up(end):
            await run.hand_off()
        elif end.limited is not None:
            await set_aside(run, end.limited, run.loaded.checkpoint)
        elif end.response is None:
            draft = asked_again(run, end, str(run.loaded.checkpoint.model)) or fail(
                run.loaded.checkpoint, end.why, now_ms=run.now_ms, tail=end.tail
            )
            await run.write(draft, end.tail)
        else:
            await self._answer(execution, end, end.response)

    def _is_given_up(self, end: StepEnd) -> bool:
        """Whether an urgent drain leaves the step to the next worker.

        An answer with calls is left too: none of them has started, but once committed they count
        as calls that may have run.
        """
        if self._running.held.drain_level is not Drain.NOW:
            return False
        return end.response is None or bool(end.response.message.tool_calls)

    async def _answer(self, execution: Execution, end: StepEnd, response: ModelResponse) -> None:
        run = self._running
        draft = answered(
            run.loaded.checkpoint,
            response,
            end.tail,
            effect_of=self._calls.effect_of,
            terminal=run.agent.terminal,
            shown=run.loaded.shown().items,
            onward=await self._onward(
                execution, execution.next_step + 1, look=response.stop == "length"
            ),
            now_ms=run.now_ms,
        )
        await run.write(draft, end.tail)
        await reached(Moment.ASSISTANT_COMMITTED, run.loaded.session_id)

    async def _call(self, execution: Execution) -> None:
        """Run the open calls; each result is committed as it lands."""
        run = self._running
        call = partial(self._calls.run_tool, execution)
        left = len(open_calls(execution))
        async with aclosing(run_group(open_calls(execution), call, run.held)) as group:
            async for results in group:
                left -= len(results)
                onward = await self._onward(execution, execution.next_step, look=not left)
                run.stop_if_lost()
                draft = landed(
                    run.loaded.checkpoint,
                    results,
                    onward=onward,
                    now_ms=run.now_ms,
                )
                await run.write(draft)
                if run.loaded.checkpoint.execution is None:
                    return  # what landed was too large to be kept, and the turn has failed of it

    async def _onward(self, execution: Execution, index: int, *, look: bool = True) -> Onward:
        """How the turn goes on once nothing is pending. `look` for steers if the commit that is
        made with it may open a step."""
        run = self._running
        steers = await waiting_steers(run, self._setup) if look and not run.held.leaving else ()
        return run.onward(execution.turn_id, index).taking(steers)
