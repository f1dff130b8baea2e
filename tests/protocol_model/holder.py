"""What a worker asks next for a session that it holds, decided from its view alone."""

from __future__ import annotations

from tests.protocol_model.requests import Append, Commit, GiveUp, Guard, Request
from tests.protocol_model.session import AHEAD, NEVER, PASSED, Wait
from tests.protocol_model.world import Holding, Scenario

MODEL, CALL, WAITS, DONE = "model", "call", "waits", "done"
"""Checkpoints: the model is to be asked, its call is committed, it waits, the answer is there."""


def next_request(holding: Holding, scenario: Scenario) -> Request:
    view = holding.view
    if not view.turn:
        if not view.inputs:
            return GiveUp(holding.session, holding.lease, "release")
        return _commit(
            holding, "start", MODEL, turn=view.turns + 1, take=_first_take(holding, scenario)
        )
    if view.controlled:
        return _end(holding, scenario, "aborted")
    match view.checkpoint:
        case "model":
            return _ask_model(holding, scenario)
        case "call":
            return _commit(holding, "result", DONE, progress=True)
        case "waits":
            return _wait(holding, scenario)
        case _:
            return _end(holding, scenario, "completed")


def runs_tool(holding: Holding) -> bool:
    """A successor reports `unknown` instead of running a tool that may have run."""
    view = holding.view
    called = bool(view.turn) and not view.controlled and view.checkpoint == CALL
    return called and holding.origin == "step"


def _first_take(holding: Holding, scenario: Scenario) -> tuple[int, ...]:
    inputs = holding.view.inputs
    if inputs[0].group:
        return tuple(one.n for one in inputs if one.group == inputs[0].group)
    if scenario.joins:
        return tuple(one.n for one in inputs if not one.group)
    return (inputs[0].n,)


def _ask_model(holding: Holding, scenario: Scenario) -> Request:
    view = holding.view
    if scenario.steers and view.inputs:
        return _commit(holding, "take", MODEL, take=tuple(one.n for one in view.inputs))
    if scenario.aborts and holding.origin == "claimed":
        progress = not scenario.rules.keep(Guard.RECOVERY_NO_PROGRESS)
        return _commit(
            holding, "end", "", finish="requeue", next="release", progress=progress
        )  # fmt: skip
    if scenario.streams and not holding.streamed:
        return Append(holding.session, holding.lease, 1)
    tool = scenario.tool if view.turn == 1 or not scenario.tool_once else ""
    if tool == "wait":
        deadline = AHEAD if scenario.deadline else NEVER
        wait = Wait(view.turn, scenario.wait, deadline)
        return _commit(holding, "step", WAITS, opens=(wait,), progress=True)
    return _commit(holding, "step", CALL if tool else DONE, progress=True)


def _wait(holding: Holding, scenario: Scenario) -> Commit:
    for wait in holding.view.waits:
        if wait.answer:
            consumed = ((wait.name, wait.answer),)
            return _commit(holding, "answer", DONE, consume=consumed, progress=True)
        if wait.deadline == PASSED:
            return _commit(holding, "result", DONE, closes=(wait.name,), progress=True)
    if holding.barred:
        return _end(holding, scenario, "failed")
    return _commit(holding, "recover", WAITS, next="park")


def _end(holding: Holding, scenario: Scenario, finish: str) -> Commit:
    following = "auto" if scenario.goes_on else "release"
    return _commit(holding, "end", "", finish=finish, next=following, progress=True)


def _commit(
    holding: Holding, kind: str, checkpoint: str, *, turn: int | None = None, **given: object
) -> Commit:
    view = holding.view
    return Commit(
        holding.session,
        holding.lease,
        view.revision,
        (holding.lease.nonce, view.revision, holding.tries),
        view.turn if turn is None else turn,
        kind,
        checkpoint,
        **given,  # type: ignore[arg-type]
    )
