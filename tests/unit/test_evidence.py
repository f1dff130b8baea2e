"""Who counts as dead by the connections that a server has: what is seen, and what is not proof."""

from __future__ import annotations

import pytest

from changeover_worker._process.evidence import PROVEN_S, Connection, Evidence

ME, A, B = "me:00000001", "a:0000000a", "b:0000000b"
FIRST: dict[str, set[Connection]] = {
    ME: {("s", 1)},
    A: {("s", 2), ("s", 3)},
    B: {("s", 4), ("t", 2)},
}


class Looks:
    """Looks at a fleet, each at a time of its own."""

    def __init__(self) -> None:
        self.evidence = Evidence(ME)
        self.at = 0.0

    def see(self, seen: dict[str, set[Connection]], after_s: float = 0.5) -> tuple[str, ...]:
        """Look once more; it takes no time."""
        self.at += after_s
        return self.evidence.look(seen, asked_at=self.at, answered_at=self.at)


def without(*names: str) -> dict[str, set[Connection]]:
    return {name: those for name, those in FIRST.items() if name not in names}


@pytest.fixture
def looks() -> Looks:
    """A fleet of which all have been seen."""
    found = Looks()
    assert found.see(FIRST) == ()
    return found


def test_who_has_had_no_connection_for_long_enough_is_dead(looks: Looks) -> None:
    assert looks.see(without(A)) == ()
    assert looks.evidence.suspects == {A}
    assert looks.see(without(A), PROVEN_S - 0.1) == ()
    assert looks.see(without(A), 0.1) == (A,)


def test_two_may_die_at_once(looks: Looks) -> None:
    looks.see(without(A, B))
    assert set(looks.see(without(A, B), PROVEN_S)) == {A, B}


def test_who_comes_back_is_alive(looks: Looks) -> None:
    looks.see(without(A))
    looks.see({**FIRST, A: {("s", 9)}})
    assert looks.evidence.suspects == set()
    looks.see(without(A), PROVEN_S)
    assert looks.see(without(A), PROVEN_S - 0.1) == ()


def test_one_connection_on_one_server_is_enough(looks: Looks) -> None:
    """Hole 22: missing on every primary."""
    looks.see({**FIRST, B: {("t", 2)}})
    assert looks.see({**FIRST, B: {("t", 2)}}, PROVEN_S) == ()
    assert looks.evidence.suspects == set()


def test_who_was_never_seen_is_no_suspect() -> None:
    """A proxy may have dropped the names."""
    looks = Looks()
    looks.see(without(A))
    looks.see(without(A), PROVEN_S)
    assert A not in looks.evidence.known
    assert looks.see(without(A), PROVEN_S) == ()


def test_nobody_dies_while_connections_of_others_are_cut(looks: Looks) -> None:
    looks.see({**without(A), B: {("s", 5)}})
    for number in range(6, 12):
        assert looks.see({**without(A), B: {("s", number)}}, PROVEN_S) == ()
    # It is quiet again: from here on its absence counts.
    assert looks.see({**without(A), B: {("s", 11)}}, PROVEN_S) == (A,)


def test_nobody_dies_while_those_of_who_looks_are_cut(looks: Looks) -> None:
    for number in range(6, 12):
        assert looks.see({**without(A), ME: {("s", number)}}, PROVEN_S) == ()


def test_who_does_not_see_itself_sees_nothing(looks: Looks) -> None:
    assert looks.see(without(A, ME)) == ()
    assert not looks.evidence.known
    assert looks.see(without(A), PROVEN_S) == ()
    assert looks.see(without(A), PROVEN_S) == ()


def test_after_a_doubt_everybody_must_be_seen_again(looks: Looks) -> None:
    """Hole 22: a restart of Redis kills all connections, which is evidence against nobody."""
    looks.see(without(A))
    looks.evidence.forget_all()
    looks.see(without(A))
    assert looks.see(without(A), PROVEN_S) == ()


def test_a_look_that_took_long_proves_no_more_than_when_it_was_asked_for(looks: Looks) -> None:
    look = looks.evidence.look
    assert look(without(A), asked_at=1.0, answered_at=1.9) == ()
    assert look(without(A), asked_at=2.0 + PROVEN_S - 0.2, answered_at=9.0) == ()
    assert look(without(A), asked_at=1.9 + PROVEN_S, answered_at=9.0) == (A,)
