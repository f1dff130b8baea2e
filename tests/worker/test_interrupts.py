"""An interrupt in every state of a session: who is told what, and exactly what the journal says.

The journals are in `tests/vectors/interrupts.txt`. What counts is which of two durable writes is
first: the interrupt or the end of the turn. The loser is told, and the next turn is left alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import pytest

from changeover_shared._store.records import NoTurn, Submitted
from tests.support.cells import (
    STATES,
    Cell,
    State,
    found,
    queued_behind_its_like,
    running_model,
    titled,
    told,
    vectors,
)
from tests.support.holding import bench


async def running_unheard(cell: Cell) -> AsyncGenerator[None]:
    """The model is thinking, and its worker is told of nothing before it writes the answer."""
    run, _ = await cell.begin()
    await cell.model.started.wait()
    yield
    cell.model.go.set()
    await run


async def running_what_was_joined(cell: Cell) -> AsyncGenerator[None]:
    """The turn answers two messages, and is steered by a third."""
    await cell.on.submit("m0", "m0", policy="steer")
    await cell.on.submit("m3", "m3", policy="steer")
    async for _ in running_model(cell):
        yield


CELLS: Final = (
    *(state for state in STATES if state is not queued_behind_its_like),
    running_unheard,
    running_what_was_joined,
)


def answered(answer: Submitted | NoTurn) -> str:
    """What the caller is told."""
    if isinstance(answer, NoTurn):
        return f"no turn, but {answer.turn}" if answer.turn else "no turn"
    return f"{answer.word.lower()} for {answer.turn}"


@pytest.mark.parametrize("state", CELLS, ids=lambda state: state.__name__)
async def test_an_interrupt_does_in_each_state_exactly_this(state: State) -> None:
    async with bench() as on:
        cell = Cell(on, "enqueue")
        async with found(cell, state):
            answer = await on.interrupt()
        said = f"{await told(cell, 'm1', 'i1')}\n= told {answered(answer)}"
        assert said == vectors("interrupts.txt")[titled("an interrupt", state)]


@pytest.mark.parametrize("state", CELLS, ids=lambda state: state.__name__)
async def test_an_interrupt_of_a_turn_that_has_ended_leaves_the_next_one_alone(
    state: State,
) -> None:
    """Late by one turn: it is answered, leaves a warning, and what runs comes to its end."""
    async with bench() as on:
        await on.submit("m0", "before")
        earlier = Cell(on, "enqueue")
        await earlier.run()
        cell = Cell(on, "enqueue")
        async with found(cell, state):
            answer = await on.interrupt(turn="t_1")
        assert isinstance(answer, NoTurn)
        assert [record.ending for record in await on.turns()] == ["completed"] * len(
            await on.turns()
        )
        assert (await on.ending("m1"), await on.ending("before")) == ("completed", "completed")
        assert (await on.types()).count("warning") == 1


async def test_a_repeated_interrupt_is_answered_alike_also_when_its_turn_has_ended() -> None:
    async with bench() as on:
        cell = Cell(on, "enqueue")
        async with found(cell, running_model):
            first = await on.interrupt()
            assert answered(first) == "accepted for t_1"
            assert answered(await on.interrupt()) == "duplicate for t_1"
            assert answered(await on.interrupt("i2")) == "merged for t_1"
        before = await on.stores.dump()
        assert answered(await on.interrupt()) == "duplicate for "
        assert await on.stores.dump() == before


def test_every_cell_of_the_table_is_filled() -> None:
    assert list(vectors("interrupts.txt")) == [titled("an interrupt", state) for state in CELLS]
