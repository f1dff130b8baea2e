"""The protocol holds in every order of everything, and each of its guards is needed for that."""

from __future__ import annotations

import re
from functools import cache

import pytest

from changeover_shared._store.scripts import script
from tests.protocol_model.requests import Guard
from tests.protocol_model.scenarios import BY_NAME, FORGETFUL, NECESSARY, POLICY, SCENARIOS
from tests.protocol_model.search import Found, search
from tests.protocol_model.waking import State, Waking

ALL = {scenario.name: scenario for scenario in (*SCENARIOS, *FORGETFUL)}

FAULTS = {"drain only": 3, "poison": 2, "takeover queues again": 2, "failover with a tool": 2}
"""How many faults at once; one for the others. `python -m tests.protocol_model` has more."""


@cache
def searched(name: str) -> tuple[Found, frozenset[tuple[str, str]]]:
    """What a scenario came to, and each word that a request was answered with."""
    words: set[tuple[str, str]] = set()
    scenario = ALL[name].changed(most_faults=FAULTS.get(name, 1))
    found = search(scenario, seen=lambda name, word: words.add((name, word)))
    return found, frozenset(words)


@pytest.mark.parametrize("name", ALL)
def test_a_scenario_holds(name: str) -> None:
    """In every order of its steps, from every state a fair way leads to an end."""
    found, _ = searched(name)
    assert not found.broken, str(found)
    assert found.ends


@pytest.mark.parametrize(
    ("name", "guards"),
    [pytest.param(name, guards, id="+".join(g.name for g in guards)) for name, guards in NECESSARY],
)
def test_a_guard_is_needed(name: str, guards: tuple[Guard, ...]) -> None:
    """With it removed the search finds how a promise is broken, so the search would find a gap."""
    found = search(BY_NAME[name].without(*guards), limit=60_000)
    assert found.broken


def test_every_guard_is_named_once() -> None:
    """A rule that no run removes would be believed, not proven."""
    removed = {guard for _, guards in NECESSARY for guard in guards}
    assert removed | {guard for _, guard in POLICY} == set(Guard)


SCRIPTS = {
    "submit": ("enqueue", "latest", "interrupt", "ctl", "answer"),
    "control": ("cancel",),
    "quarantine": ("stop",),
    "redrive": ("redrive",),
    "dead_letter": ("dead_letter",),
    "delete": ("delete",),
    "claim": ("claim",),
    "append": ("append",),
    "commit": ("commit",),
    "give_up": ("giveup",),
    "reap": ("reap",),
    "defer": ("defer",),
    "purge": ("purge",),
}
"""The scripts that the model has, and what their requests are called there."""

FLEET = {"NO_FLEET", "LAYOUT", "EPOCH"}

ELSEWHERE: dict[str, set[str]] = {
    "submit": {"MISMATCH", "ORDER", "CLOSED", "ROUTE", "TOO_BIG", "TOO_OLD", "SKEW", "TOO_FAR"},
    "control": {"ROUTE"},
    "quarantine": {"ROUTE", "LATE"},
    "redrive": {"ROUTE", "INPUT", "LATE"},
    "dead_letter": {"ROUTE", "LATE"},
    "delete": {"MOVED", "ROUTE", "CONTEXT"},
    "append": {"GAP", "DROPPED"},
    "commit": {"BINDING", "CONTEXT", "TOO_BIG", "ROUTE"},
    "claim": {"SUSPECT", "PAUSED"},
    "reap": {"ROUTE", "NONE", "BUSY"},
    "defer": {"ROUTE", "NONE"},
    "purge": {"KEPT", "NONE"},
}
"""Words about what no scenario has: routes, queues, sizes, ids with other contents, prefixes,
suspects, requests that a careful caller does not make. The tests of each script have them."""


def words_of(name: str) -> set[str]:
    """What a script answers about one session, as its first comment says."""
    loaded = script(name)
    told = re.search(r"REPLIES(.*?)-- (?:USES|FLAGS)", loaded.body, re.DOTALL)
    assert told
    words = {*loaded.header.replies, *re.findall(r"\b[A-Z_]{2,}\b", told[1])} - FLEET
    if "not_after" not in loaded.header.args:
        words.discard("LATE")
    if loaded.header.each:
        words.discard("OK")
    return words - ELSEWHERE.get(name, set())


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_word_of_a_script_is_reached(name: str) -> None:
    """The guards are exercised, not merely there; a new word of a script needs one in the model."""
    reached = {answer for scenario in ALL for answer in searched(scenario)[1]}
    requests = {(request.split()[0], word.split()[0]) for request, word in reached}
    assert {word for request, word in requests if request in SCRIPTS[name]} == words_of(name)


FIRST = State(to_submit=3, losses=2, deaths=2)


def test_ready_work_is_found_whatever_is_lost() -> None:
    """Rings, bells in dying hands, the sweeper: none of them is needed for ever."""
    assert Waking().stuck(FIRST) == 0


@pytest.mark.parametrize("left_out", ["sweeps", "gate_runs_out"])
def test_ready_work_needs_the_sweep(left_out: str) -> None:
    """Without the sweep, or with a gate that a dead sweeper keeps, work waits for ever."""
    assert Waking(**{left_out: False}).stuck(FIRST) > 0


def test_ringing_again_only_saves_time() -> None:
    """A worker that leaves sessions behind rings; the sweep would as well."""
    assert Waking(rings_again=False).stuck(FIRST) == 0
    assert Waking(rings_again=False, sweeps=False).stuck(FIRST) > 0
