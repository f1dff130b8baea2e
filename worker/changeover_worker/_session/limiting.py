"""The requests of one model step, let through by the limits of what they ask."""

from __future__ import annotations

import secrets
import time
from datetime import timedelta
from functools import partial
from typing import Final

from changeover_shared._items import Usage
from changeover_shared._store.records import Asked, Bucket
from changeover_shared._units import milliseconds, show_duration
from changeover_worker._models.assembled import counted_tokens
from changeover_worker._models.fallback import Fallback
from changeover_worker._models.gate import Limited, Respond
from changeover_worker._models.limit import Limit
from changeover_worker._models.model import (
    Emit,
    ModelDelta,
    ModelError,
    ModelRequest,
    ModelResponse,
    UsageDelta,
)
from changeover_worker._session.running import Running
from changeover_worker._turn.execution import open_execution
from changeover_worker._turn.retry import HELD_PAUSE_MS, LIMIT, LONGEST_WISH_MS
from changeover_worker._turn.rewriting import fixed_tokens, tokens

REFUSED: Final = "provider_rate_limit"
"""The kind of failure of a provider to which its limit was kept too badly."""

SUMMARY: Final = "summary"
"""The part of a step that compacts the context before its own request."""


async def asked_within(
    run: Running, name: str, request: ModelRequest, emit: Emit, *, part: str = ""
) -> ModelResponse:
    """Ask a model of the app as soon as its limits, and those of the models behind it, allow it.

    A short wait is waited here. Raises `Limited` after a longer one has begun and when the session
    is wanted elsewhere, `ModelError` when it would have to wait for over an hour, and whatever the
    model raises. `part` names a request that is not the step's own.
    """
    model = run.app.model(name)
    gate = StepGate(run, part)
    respond = partial(model.respond, gate=gate) if isinstance(model, Fallback) else model.respond
    left_ms = min(HELD_PAUSE_MS, milliseconds(run.settings.step_timeout) // 2)
    while True:
        try:
            response = await gate.through(name, request, emit, respond)
        except Limited as limited:
            if limited.wait_ms > LONGEST_WISH_MS:
                raise _too_far(limited) from None
            left_ms -= limited.wait_ms
            if left_ms < 0:
                raise
            await gate.wait(limited.wait_ms)
            if run.held.leaving:
                raise
        else:
            gate.leave()
            gate.leave_others(name)
            return response


def leave_place(run: Running) -> None:
    """Give back the place of a turn that was set aside and does not go on."""
    execution = open_execution(run.loaded.checkpoint)
    retry = execution.retry
    if retry is None or retry.kind != LIMIT:
        return
    for part in ("", SUMMARY):
        StepGate(run, part).leave_places(retry.model)


class StepGate:
    """Lets the requests of one model step through; see `Gate`."""

    def __init__(self, run: Running, part: str) -> None:
        execution = open_execution(run.loaded.checkpoint)
        self._run = run
        self._place = "|".join(
            (run.loaded.session_id, execution.turn_id, str(execution.next_step), part)
        )
        self._waits: dict[str, Asked] = {}
        self._passed: set[str] = set()
        self._came_back = execution.retry is not None and execution.retry.kind == LIMIT

    async def through(
        self, name: str, request: ModelRequest, emit: Emit, respond: Respond
    ) -> ModelResponse:
        """Ask the model of that name by `respond`. Raises `Limited` when it may not be asked."""
        limit = self._run.app.limit(name)
        if limit is None:
            return await respond(request, emit)
        limiter = self._run.limiter
        asked = self._asked(name, limit, request)
        answer = await limiter.ask(asked)
        if answer.wait_ms:
            if not answer.far:
                self._waits[name] = asked
            raise Limited(name, answer.wait_ms)
        self._waits.pop(name, None)
        self._passed.add(name)
        counted = _Counted(emit)
        began = time.monotonic()
        used: int | None = None
        try:
            response = await respond(request, counted.emit)
            if isinstance(response, ModelResponse):
                counted.note(response.usage)
        except Limited:
            await limiter.refund(asked)
            raise
        except ModelError as error:
            if error.kind == REFUSED:
                used = 0
                if error.retryable and error.retry_after:
                    wish_ms = round(error.retry_after / timedelta(milliseconds=1))
                    await limiter.hold(asked, wish_ms)
            raise
        finally:
            # After a refund this changes nothing. What was not counted came to what was estimated.
            used = counted.usage.total_tokens or (asked.tokens if used is None else used)
            took_ms = round((time.monotonic() - began) * 1000)
            await limiter.settle(asked, tokens=used, took_ms=took_ms)
        return response

    async def wait(self, ms: int) -> None:
        """Wait so long, or until the session is wanted elsewhere. An interrupt gives the places
        back; who takes the session over goes on with them."""
        try:
            await self._run.held.changed_or(ms / 1000)
        finally:
            if self._run.held.interrupted:
                self.leave()

    def leave(self) -> None:
        """Give the places back that are not needed any more."""
        for asked in self._waits.values():
            self._run.limiter.leave(asked)
        self._waits.clear()

    def leave_others(self, name: str) -> None:
        """Give back, once the question was answered, the places for other models behind the same
        name that were taken before the session was set aside."""
        if self._came_back:
            self.leave_places(name)

    def leave_places(self, name: str) -> None:
        """Give back the places that an earlier holder of the session may have taken."""
        for one in self._run.app.limited_with(name):
            limit = self._run.app.limit(one)
            if limit is not None and one not in self._passed:
                self._run.limiter.leave(self._asked(one, limit))

    def _asked(self, name: str, limit: Limit, request: ModelRequest | None = None) -> Asked:
        counted = limit.name or name
        tenant = self._run.loaded.tenant
        buckets = [Bucket(counted, "", *limit.of_all)]
        if tenant and any(limit.of_tenant):
            buckets.insert(0, Bucket(counted, tenant, *limit.of_tenant))
        size = 0
        if request is not None:
            size = fixed_tokens(request.instructions, request.tools) + tokens(request.items)
        return Asked(
            place=self._place,
            request=f"{self._place}|{secrets.token_hex(8)}",
            tokens=size,
            buckets=tuple(buckets),
        )


class _Counted:
    """Takes note of the tokens that a stream tells of."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.usage = Usage()

    async def emit(self, delta: ModelDelta) -> None:
        """Hand a delta over."""
        if isinstance(delta, UsageDelta):
            self.note(delta.usage)
        await self._emit(delta)

    def note(self, usage: object) -> None:
        """Keep a count that can be; what else a model says of its tokens is not for the limit."""
        found = counted_tokens(usage)
        if found is not None and found != Usage():
            self.usage = found


def _too_far(limited: Limited) -> ModelError:
    wait = timedelta(milliseconds=limited.wait_ms)
    return ModelError(
        kind=REFUSED,
        message=f"model {limited.model!r} is at its limit for {show_duration(wait)}, and nobody "
        "waits for over an hour; it was not asked; raise its limit, or send less",
        retryable=True,
        retry_after=wait,
    )
