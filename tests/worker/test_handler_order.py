"""A handler that leaves the way that its turn has recorded: nothing runs, people are told."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from changeover._explain import explain
from changeover_shared._events import (
    SessionQuarantined,
)
from changeover_shared._words import Status
from changeover_worker import (
    StepMismatch,
    Turn,
)
from tests.support.handling import Works, app_of, died_in
from tests.support.holding import bench


async def first_way(turn: Turn[Any], works: Works) -> None:
    await turn.step("one", works.gives("one"))
    await turn.say("between")
    await turn.step("stuck", works.hangs("stuck"), effect="pure")


async def renames(turn: Turn[Any], works: Works) -> None:
    await turn.step("two", works.gives("two"))


async def says_first(turn: Turn[Any], works: Works) -> None:
    await turn.say("hello")


async def renames_what_runs(turn: Turn[Any], works: Works) -> None:
    await turn.step("one", works.gives("one"))
    await turn.say("between")
    await turn.step("three", works.gives("three"))


async def returns_early(turn: Turn[Any], works: Works) -> str:
    await turn.step("one", works.gives("one"))
    return "done"


async def returns_before_what_runs(turn: Turn[Any], works: Works) -> str:
    await turn.step("one", works.gives("one"))
    await turn.say("between")
    return "done"


async def swallows(turn: Turn[Any], works: Works) -> str:
    try:
        await turn.step("two", works.gives("two"))
    except BaseException as stopped:
        assert isinstance(stopped, StepMismatch)
    return "all is well"


@pytest.mark.parametrize(
    ("other_way", "said"),
    [
        (renames, "call 1 of the turn was step 'one', now it is step 'two'"),
        (says_first, "call 1 of the turn was step 'one', now it is say"),
        (renames_what_runs, "call 3 of the turn was step 'stuck', now it is step 'three'"),
        (returns_early, "call 2 of the turn was say, now the handler returns before it"),
        (
            returns_before_what_runs,
            "call 3 of the turn was step 'stuck', now the handler returns before it",
        ),
        (swallows, "call 1 of the turn was step 'one', now it is step 'two'"),
    ],
)
async def test_a_handler_that_goes_another_way_quarantines_its_session(
    other_way: Any, said: str
) -> None:
    works = Works()

    async def before(turn: Turn[Any]) -> None:
        await first_way(turn, works)

    async def after(turn: Turn[Any]) -> Any:
        return await other_way(turn, works)

    async with bench() as on:
        await on.submit("go")
        await died_in(on, app_of(before), works, "stuck")
        works.ran.clear()
        items = await on.transcript()
        assert (await on.run(app_of(after), "w:00000002")).how == "released"
        head = await on.stores.worker.read_head(on.session)
        assert head is not None
        assert (head.status, head.turn) == (Status.QUARANTINED, "t_1")
        assert await on.ending() is None
        assert (await on.transcript(), works.ran) == (items, Counter())
        (told,) = [e for e in await on.events() if isinstance(e, SessionQuarantined)]
        assert told.error == (
            f"handler 'bot' went another way than before: {said}; nothing was run; deploy code "
            "that makes the turn's calls in the recorded order; the turn stays open"
        )
        (logged,) = [c.kwargs for c in on.log.calls if c.args == ("session_quarantined",)]
        assert (logged["session"], logged["cause"], logged["error"]) == ("s", "worker", told.error)
        snapshot = await on.stores.producer.snapshot(on.session)
        assert snapshot is not None
        explained = explain(snapshot, (), (None, 0), on.stores.worker.clock.now_ms())
        assert explained.code == "quarantined"
        assert explained.text == f"s is quarantined: {told.error}"
        assert explained.facts["error"] == told.error
