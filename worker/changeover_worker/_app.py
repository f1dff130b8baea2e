"""`App`: what a worker is given."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar

from structlog.typing import FilteringBoundLogger

from changeover_shared._budget import Budget
from changeover_shared._errors import Invalid
from changeover_shared._events import Event
from changeover_shared._policies import AnyPolicy
from changeover_worker._agent import Agent
from changeover_worker._handler import Handler
from changeover_worker._models.fallback import Fallback
from changeover_worker._models.limit import Limit
from changeover_worker._models.model import Model, ProviderModel
from changeover_worker._models.names import resolve_model
from changeover_worker._models.price import Price

F = TypeVar("F", bound=Callable[..., Any])
Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]

OnEvent = Callable[[str, Event], Awaitable[None]]
"""Takes the session id and an event that is durable."""


class App:
    """The agents and handlers that a worker runs, the models that they ask, and what they share."""

    def __init__(
        self,
        *,
        agents: Sequence[Agent] = (),
        models: Mapping[str, Model | str] | None = None,
        prices: Mapping[str, Price] | None = None,
        limits: Mapping[str, Limit] | None = None,
        lifespan: Lifespan | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        """Check that everything an agent names is there; raises `Invalid`.

        `models` maps names to models or to strings such as `openai:gpt-5-mini`, which are
        resolved at first use; `prices` says what some of them cost, for budgets, and `limits` how
        often they may be asked by the whole fleet, under the same names or those of the models
        in a `Fallback`. `lifespan` is entered once per worker process; what it yields is
        `ctx.resources`.

        `on_event(session_id, event)` is awaited for every event that this process writes, once it
        is durable: for mirrors and metrics. A session's events come one at a time and in the order
        of `seq`; `at_ms` is this process's estimate. What producers send is not among them, and
        the last ones before a crash may be missing: the journal has them all. Up to 256 events of
        a session wait for it; then the session waits too, so it must not wait for that session. A
        session that has to go at once leaves it two seconds, then it is cancelled. What it raises
        is logged once, and it is told nothing more of that session until that is claimed again.
        """
        self._models = _checked_models(models or {})
        self._prices = _checked_prices(prices or {}, self._models)
        self._limits = _checked_limits(limits or {}, self._models)
        self._agents = _checked_agents(agents, self._models)
        self._lifespan = _checked_lifespan(lifespan)
        self._on_event = _checked_on_event(on_event)

    def handler(
        self,
        name: str,
        *,
        model: str | None = None,
        policy: AnyPolicy = "enqueue",
        budget: Budget | None = None,
    ) -> Callable[[F], F]:
        """Register an `async def` function of one `Turn` as what answers under `name`.

        `model` is what its sessions ask unless they have chosen another one; the app's first if
        None. `policy` is what becomes of messages that name none of their own, `budget` what a
        turn may use. The function is left as it is. Raises `Invalid` for one that does not fit,
        and for a name that an agent or another handler has.
        """
        if model is not None and model not in self._models:
            raise _unknown("model", model, self._models, of=f"handler {name!r:.80}: ")
        chosen = next(iter(self._models), "") if model is None else model

        def register(function: F) -> F:
            handler = Handler(name, model=chosen, policy=policy, budget=budget, function=function)
            if name in self._agents:
                raise _invalid("handler", f"the app has an agent or handler {name!r} already")
            self._agents[name] = handler
            return function

        return register

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The agents and handlers by name."""
        return self._agents

    @property
    def on_event(self) -> OnEvent | None:
        """Who is told what becomes durable."""
        return self._on_event

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names that `model` knows."""
        return tuple(self._models)

    def agent(self, name: str) -> Agent:
        """The agent of that name; raises `Invalid` naming those that there are."""
        try:
            return self._agents[name]
        except KeyError:
            raise _unknown("agent", name, self._agents) from None

    def model(self, name: str) -> Model:
        """The model of that name, the same object each time.

        Raises `Invalid` naming those that there are, and `ExtraMissing` when a model string's
        SDK is not installed.
        """
        try:
            model = self._models[name]
        except KeyError:
            raise _unknown("model", name, self._models) from None
        if isinstance(model, str):
            model = self._models[name] = resolve_model(model)
        return model

    def price(self, name: str) -> Price | None:
        """What a model costs, if that was said."""
        return self._prices.get(name)

    def limit(self, name: str) -> Limit | None:
        """How often a model, or one of a `Fallback`, may be asked, if that was said."""
        return self._limits.get(name)

    def limited_with(self, name: str) -> tuple[str, ...]:
        """The models with limits for which one question may wait: that one, and those of the
        `Fallback` that it is or stands in."""
        together = {name}
        for given, model in self._models.items():
            if isinstance(model, Fallback) and name in (given, *model.route_names):
                together |= {given, *model.route_names}
        return tuple(sorted(together & self._limits.keys()))

    def check(self) -> None:
        """Raise a `SetupError` or `Invalid` if an agent's model could never answer, for example
        without an API key."""
        for agent in self._agents.values():
            model = self.model(agent.model) if agent.model else None
            if isinstance(model, ProviderModel):
                model.check()

    def log_to(self, log: FilteringBoundLogger) -> None:
        """Say there what its models have to say to operators."""
        for model in self._models.values():
            if isinstance(model, Fallback):
                model.log_to(log)

    async def aclose(self) -> None:
        """Close the connections of its models; they open new ones if they are asked again."""
        for model in self._models.values():
            if isinstance(model, ProviderModel):
                await model.aclose()

    def lifespan(self) -> AbstractAsyncContextManager[Any]:
        """What to hold open while the app runs; yields the resources, None without a lifespan."""
        return nullcontext() if self._lifespan is None else self._lifespan(self)


def _checked_models(models: Any) -> dict[str, Model | str]:
    if not isinstance(models, Mapping):
        raise _invalid("models", "models map names to models or model strings")
    for name, model in models.items():
        if not isinstance(name, str) or not name:
            raise _invalid("models", f"{name!r:.80} is no name")
        if not isinstance(model, str | Model):
            raise _invalid(f"model {name!r}", f"{model!r:.80} is no model and no model string")
    return dict(models)


def _checked_prices(prices: Any, models: Mapping[str, Any]) -> dict[str, Price]:
    if not isinstance(prices, Mapping):
        raise _invalid("prices", "prices map names of models to prices")
    for name, price in prices.items():
        if name not in models:
            raise _unknown("model", str(name), models, of="prices: ")
        if not isinstance(price, Price):
            raise _invalid("prices", f"{price!r:.80} of model {name!r} is no Price")
    return dict(prices)


def _checked_limits(limits: Any, models: Mapping[str, Any]) -> dict[str, Limit]:
    if not isinstance(limits, Mapping):
        raise _invalid("limits", "limits map names of models to limits")
    fallbacks = [model for model in models.values() if isinstance(model, Fallback)]
    known = dict(models) | {name: one for one in fallbacks for name in one.route_names}
    named: dict[str, Limit] = {}
    for name, limit in limits.items():
        if name not in known:
            raise _unknown("model", str(name), known, of="limits: ")
        if not isinstance(limit, Limit):
            raise _invalid("limits", f"{limit!r:.80} of model {name!r} is no Limit")
        counted = replace(limit, name=limit.name or name)
        if named.setdefault(counted.name, counted) != counted:
            raise _invalid("limits", f"two of the name {counted.name!r} allow different things")
    for name, model in models.items():
        if isinstance(model, Fallback) and name in limits:
            for route in {*model.route_names} & {*limits} - {name}:
                if (limits[route].name or route) == (limits[name].name or name):
                    reason = f"{name!r} and {route!r} behind it have one name: they would"
                    raise _invalid("limits", f"{reason} count each question twice")
    return dict(limits)


def _checked_agents(agents: Any, models: Mapping[str, Any]) -> dict[str, Agent]:
    if not isinstance(agents, Sequence):
        raise _invalid("agents", "agents are a sequence of agents")
    checked: dict[str, Agent] = {}
    for agent in agents:
        if not isinstance(agent, Agent):
            raise _invalid("agents", f"{agent!r:.80} is no Agent")
        if agent.name in checked:
            raise _invalid("agents", f"two are named {agent.name!r}")
        summariser = agent.compaction.model if agent.compaction else None
        for model in (agent.model, summariser):
            if model is not None and model not in models:
                raise _unknown("model", model, models, of=f"agent {agent.name!r}: ")
        checked[agent.name] = agent
    return checked


def _checked_lifespan(lifespan: Lifespan | None) -> Lifespan | None:
    if lifespan is None:
        return None
    if not callable(lifespan):
        raise _invalid("lifespan", f"{lifespan!r:.80} is no function of the app")
    if inspect.isasyncgenfunction(lifespan):
        raise _invalid("lifespan", "yields but is no context manager; add @asynccontextmanager")
    return lifespan


def _checked_on_event(on_event: Any) -> OnEvent | None:
    asks = inspect.iscoroutinefunction
    if on_event is None or asks(on_event) or asks(type(on_event).__call__):
        checked: OnEvent | None = on_event
        return checked
    raise _invalid("on_event", f"{on_event!r:.80} is no async function")


def _unknown(kind: str, name: str, known: Mapping[str, Any], *, of: str = "") -> Invalid:
    there = ", ".join(known) or "none"
    return _invalid(kind, f"{of}there is no {kind} {name!r:.80} in this app; there are: {there}")


def _invalid(field: str, reason: str) -> Invalid:
    return Invalid(field=field, reason=reason, unchanged="nothing was started")
