"""Every policy in every state of its session: exactly what the journal says, to the last event.

The journals are in `tests/vectors/policies.txt`, a section for each policy and state: `m1` is what
the session does when `m2` comes, under the policy.
"""

from __future__ import annotations

from typing import Final, get_args

import pytest

from changeover_shared._errors import Busy
from changeover_shared._policies import AnyPolicy, Debounce, Policy
from tests.support.cells import STATES, Cell, State, found, titled, told, vectors
from tests.support.holding import bench

POLICIES: Final[dict[str, AnyPolicy]] = {
    **{policy: policy for policy in get_args(Policy)},
    "debounce": Debounce("1h", "2h"),
}


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("policy", POLICIES)
async def test_a_policy_does_in_each_state_exactly_this(policy: str, state: State) -> None:
    async with bench() as on:
        cell = Cell(on, POLICIES[policy])
        async with found(cell, state):
            try:
                await on.submit("m2", "m2", policy=cell.policy)
            except Busy as busy:
                assert policy == "reject", busy
        assert await told(cell, "m1", "m2") == vectors("policies.txt")[titled(policy, state)]


def test_every_cell_of_the_table_is_filled() -> None:
    expected = [titled(policy, state) for policy in POLICIES for state in STATES]
    assert list(vectors("policies.txt")) == expected
