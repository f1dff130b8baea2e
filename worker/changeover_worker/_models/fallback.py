"""Several models behind one name: the first that can answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import Invalid
from changeover_shared._items import Usage
from changeover_shared._units import Duration, duration
from changeover_worker._models.breaker import Breaker, Change, Outcome, Permit
from changeover_worker._models.gate import Gate, Limited
from changeover_worker._models.model import (
    Emit,
    Model,
    ModelDelta,
    ModelError,
    ModelRequest,
    ModelResponse,
    ProviderModel,
    UsageDelta,
)
from changeover_worker._models.names import resolve_model

_ELSEWHERE: Final = frozenset({"provider_auth", "provider_rate_limit"})
"""Failures that asking again does not mend, but another provider may: a key, a used-up quota."""


class Fallback:
    """Asks the first of several models whose circuit is closed, and the next if it fails.

    The next one is asked at once after a failure that is retryable, or that is about the key or
    the quota of one provider, and only while nothing of the answer was shown: after the first
    delta a failure is the step's. A refused request (`provider_request`) would be refused again
    and falls to nobody. `failures` counted failures in a row open a model's circuit for
    `cooldown`; then one request probes it. Such a failure counts whether or not another model
    could step in; a cancelled request does not.

    Raises `Invalid` without models, for what is no model, and for a `Fallback` in a `Fallback`.
    Model strings are resolved at first use. One instance serves all sessions of a worker process,
    which learn of failing providers together; processes learn each for themselves.
    """

    def __init__(
        self,
        *models: Model | str,
        failures: int = 5,
        cooldown: Duration = "30s",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` tells seconds and never goes back; tests bring their own."""
        if not models:
            raise _invalid("models", "a Fallback needs at least one model")
        if type(failures) is not int or failures < 1:
            raise _invalid("failures", f"{failures!r:.80} is no number of failures from 1 on")
        span = duration(cooldown, field="cooldown").total_seconds()
        self._routes = tuple(
            _Route(_checked(model), Breaker(failures=failures, cooldown_s=span)) for model in models
        )
        self._clock = clock
        self._log: FilteringBoundLogger | None = None

    @property
    def name(self) -> str:
        """`fallback(FIRST, SECOND)`."""
        return f"fallback({', '.join(route.name for route in self._routes)})"

    def __repr__(self) -> str:
        return f"Fallback({', '.join(repr(route.name) for route in self._routes)})"

    def log_to(self, log: FilteringBoundLogger) -> None:
        """Say there when a circuit opens or closes."""
        self._log = log

    def check(self) -> None:
        """Raise what the first of its models that could never answer raises."""
        for route in self._routes:
            model = route.resolved()
            if isinstance(model, ProviderModel):
                model.check()

    async def aclose(self) -> None:
        """Close the connections of all its models; the circuits stay as they are."""
        for route in self._routes:
            if isinstance(route.model, ProviderModel):
                await route.model.aclose()

    @property
    def route_names(self) -> tuple[str, ...]:
        """What its models are called, for limits of their own."""
        return tuple(route.name for route in self._routes)

    async def respond(
        self, request: ModelRequest, emit: Emit, *, gate: Gate | None = None
    ) -> ModelResponse:
        """Ask until one answers; see `Model.respond`.

        The response names who answered in `served_by` if it was not the first. Raises
        `ModelError` of kind `provider_unavailable` when several could not answer or no circuit
        let the request pass; `retry_after` is then the time until one may. A worker's `gate`
        passes over models that are at their limit.
        """
        failed: dict[int, ModelError] = {}
        limited: dict[int, Limited] = {}
        shown = _Shown(emit)
        for place, route in enumerate(self._routes):
            permit = route.breaker.permit(self._clock())
            if permit is None:
                continue
            try:
                response = await self._asked(route, permit, request, shown.emit, gate)
            except Limited as full:
                limited[place] = full
                continue
            except ModelError as error:
                if _outcome(error) is not Outcome.FAILED or shown.anything:
                    raise
                failed[place] = error
                shown.spend()
                continue
            if place:
                response = replace(response, served_by=response.served_by or route.name)
            return shown.counted(response)
        if limited and not failed:
            raise min(limited.values(), key=lambda full: full.wait_ms)
        raise self._unavailable(failed, limited)

    async def _asked(
        self, route: _Route, permit: Permit, request: ModelRequest, emit: Emit, gate: Gate | None
    ) -> ModelResponse:
        outcome = Outcome.UNKNOWN
        respond = route.resolved().respond
        try:
            if gate is None:
                response = await respond(request, emit)
            else:
                response = await gate.through(route.name, request, emit, respond)
            if not isinstance(response, ModelResponse):
                raise TypeError(f"{route.name} returned {response!r:.80}, not a ModelResponse")
            outcome = Outcome.ANSWERED
            return response
        except ModelError as error:
            outcome = _outcome(error)
            raise
        finally:
            self._note(route, route.breaker.ended(permit, outcome, self._clock()))

    def _unavailable(
        self, failed: Mapping[int, ModelError], limited: Mapping[int, Limited]
    ) -> ModelError:
        if len(failed) == len(self._routes) == 1:
            return failed[0]
        now, told, waits = self._clock(), list[str](), list[float]()
        for place, route in enumerate(self._routes):
            error, rest_s = failed.get(place), route.breaker.wait_s(now)
            if place in limited:
                told.append(f"{route.name} is at its limit")
                rest_s = max(rest_s, limited[place].wait_ms / 1000)
            elif error is None:
                told.append(f"{route.name} has failed too often and is left alone for a while")
            else:
                told.append(error.message)
            if error is None or error.retryable:
                waits.append(max(rest_s, _wish_s(error)))
        remedy = "it may be asked again" if waits else "mend what each of them says"
        soonest = min(waits, default=0.0)
        return ModelError(
            kind="provider_unavailable",
            message=f"{self.name}: none could answer, nothing was said; {remedy}: "
            + " | ".join(told),
            retryable=bool(waits),
            retry_after=timedelta(seconds=soonest) if soonest else None,
        )

    def _note(self, route: _Route, change: Change | None) -> None:
        if self._log is None or change is None:
            return
        if change is Change.OPENED:
            rest_s = round(route.breaker.wait_s(self._clock()), 1)
            self._log.warning("circuit_opened", model=route.name, rest_s=rest_s)
        else:
            self._log.info("circuit_closed", model=route.name)


@dataclass(slots=True)
class _Route:
    """One of the models, and its circuit."""

    model: Model | str
    breaker: Breaker

    @property
    def name(self) -> str:
        return self.model if isinstance(self.model, str) else self.model.name

    def resolved(self) -> Model:
        if isinstance(self.model, str):
            self.model = resolve_model(self.model)
        return self.model


class _Shown:
    """What of an answer went out, and what the attempts before it have cost."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._spent = Usage()
        self._current = Usage()
        self.anything = False

    async def emit(self, delta: ModelDelta) -> None:
        """Hand a delta over; counts go on from those of the attempts before."""
        if isinstance(delta, UsageDelta):
            self._current = delta.usage
            delta = UsageDelta(self._spent + delta.usage)
        else:
            self.anything = True
        await self._emit(delta)

    def spend(self) -> None:
        """Keep what a failed attempt has cost."""
        self._spent, self._current = self._spent + self._current, Usage()

    def counted(self, response: ModelResponse) -> ModelResponse:
        """The response with the tokens of all attempts."""
        if self._spent == Usage():
            return response
        last = response.usage if response.usage != Usage() else self._current
        return replace(response, usage=self._spent + last)


def _outcome(error: ModelError) -> Outcome:
    if error.retryable or error.kind in _ELSEWHERE:
        return Outcome.FAILED
    # A provider that refuses a request is there.
    return Outcome.ANSWERED if error.kind == "provider_request" else Outcome.UNKNOWN


def _wish_s(error: ModelError | None) -> float:
    wish = None if error is None else error.retry_after
    return 0.0 if wish is None else wish.total_seconds()


def _checked(model: object) -> Model | str:
    if isinstance(model, Fallback):
        raise _invalid("models", "a Fallback in a Fallback; write its models out in one")
    if not isinstance(model, str | Model):
        raise _invalid("models", f"{model!r:.80} is no model and no model string")
    return model


def _invalid(field: str, reason: str) -> Invalid:
    return Invalid(field=field, reason=reason, unchanged="nothing was started")
