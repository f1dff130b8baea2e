"""Each check of the history catches the history that it is there for, and passes a good one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from changeover_shared._events import Delta, Event, Message, TurnCompleted, TurnStarted
from changeover_shared._store.records import SubmissionState
from changeover_shared._words import Ending
from tests.support.history import judge, violations
from tests.support.history_records import REFUSED, Final, Record, read_records

FIRST, SECOND = "1|w1|a", "2|w2|b"


def record(script: str, at: float, *answer: str, took: float = 0.5, **given: Any) -> Record:
    answered = at + took if answer else float("inf")
    return Record("somebody", script, "s", given, at, answered, answer)


def submit(id: str, at: float, *answer: str, cls: str = "turn") -> Record:
    given: dict[str, Any] = {"id": id, "class": cls, "digest": f"d:{id}", "events": ["message"]}
    return record("submit", at, *answer, **given)


def claim(lease: str, at: float, *, rev: int, seq: int) -> Record:
    fence, incarnation, nonce = lease.split("|")
    answer = ("GRANTED", fence, str(rev), str(seq), "")
    return record("claim", at, *answer, incarnation=incarnation, nonce=nonce)


def commit(
    id: str, lease: str, at: float, *, rev: int, first: int, events: Sequence[str], word: str = "OK"
) -> Record:
    answer = (word, "held", str(rev), str(first), "1", "0", "", "0", "0", "held")
    return record("commit", at, *answer, commit_id=id, lease=lease, events=list(events))


def append(lease: str, at: float, *, first: int, batch: int = 1) -> Record:
    return record(
        "append", at, "OK", str(first), "0", "1", lease=lease, batch=batch, events=["delta"]
    )


def numbered(*events: tuple[int, Event]) -> tuple[Event, ...]:
    return tuple(
        event.model_copy(update={"seq": seq, "fence": fence, "type": event.wire_type})
        for seq, (fence, event) in enumerate(events, 1)
    )


def ended(id: str, ending: Ending | None = Ending.COMPLETED, *, n: int = 1) -> SubmissionState:
    return SubmissionState(id, n, 1, ending, "t_1", 5 if ending else 0, 0, 0)


HISTORY = (
    submit("m1", 0, "ACCEPTED", "1", "1", "", "ready"),
    submit("m2", 0.1),
    submit("m2", 0.2, "DUPLICATE", "2", "2", "", "ready"),
    claim(FIRST, 1, rev=0, seq=2),
    commit("k1", FIRST, 2, rev=1, first=3, events=["turn_started"]),
    append(FIRST, 3, first=4),
    record("append", 4, "LOST", "2", lease=FIRST, batch=2, events=["delta"]),
    claim(SECOND, 4, rev=1, seq=4),
    record("renew", 5, "OK", "100", "0", "0", lease=SECOND),
    commit("k2", SECOND, 5, rev=2, first=5, events=["turn_completed"]),
    commit("k2", SECOND, 6, rev=2, first=5, events=["turn_completed"], word="REPLAY"),
    submit("m3", 7, "BUSY", "inbox", "1", "1", "1000"),
    record("told", 8, REFUSED, id="m3"),
)
FINAL = Final(
    fence=2,
    rev=2,
    seq=5,
    journal=numbered(
        (0, Message(text="one", submission_id="m1")),
        (0, Message(text="two", submission_id="m2")),
        (1, TurnStarted(submission_ids=("m1", "m2"))),
        (1, Delta(text="a")),
        (2, TurnCompleted(submission_ids=("m1", "m2"))),
    ),
    receipts={"m1": ended("m1"), "m2": ended("m2", n=2)},
)


def test_a_good_history_has_nothing_wrong() -> None:
    assert violations(HISTORY, {"s": FINAL}) == []


def test_a_lost_answer_stands_for_what_it_may_have_done() -> None:
    """A claim and a commit whose answers never came take a fence and a revision."""
    lost = [
        record(one.script, one.issued, **one.given) if one.given.get("nonce") == "a" else one
        for one in HISTORY
        if one.given.get("lease") != FIRST
    ]
    unanswered = record("commit", 2, commit_id="k1", lease=FIRST)
    assert violations([*lost, unanswered], {"s": FINAL}) == []


def test_the_repeat_of_a_claim_may_have_been_granted_another_fence() -> None:
    """Where the session has been with somebody else since the reply was lost."""
    unanswered = record("claim", 6, incarnation="w3", nonce="c")
    again = claim("4|w3|c", 8, rev=2, seq=5)
    history = [*HISTORY, unanswered, again]
    assert violations(history, {"s": replace(FINAL, fence=4)}) == []
    found = violations([*HISTORY, again], {"s": replace(FINAL, fence=4)})
    assert found == ["s: G2: nobody was granted the fences [3]"]


BAD: dict[str, tuple[Sequence[Record], str]] = {
    "a fence is granted twice": (
        [claim("2|w3|c", 5, rev=1, seq=4)],
        "G2: fence 2 was granted as ['2|w2|b', '2|w3|c']",
    ),
    "a fence goes down": ([claim(FIRST, 6, rev=2, seq=5)], "was granted after fence 2 was"),
    "a fence is above the store's": (
        [claim("3|w3|c", 9, rev=2, seq=5)],
        "G2: fence 3 was granted and the store is at 2",
    ),
    "an append of the holder before": (
        [append(FIRST, 6, first=6, batch=2)],
        "G2: append under 1|w1|a was answered OK after fence 2 was granted",
    ),
    "a renewal of the holder before": (
        [record("renew", 5, "OK", "1", "0", "0", lease=FIRST)],
        "G2: renew under 1|w1|a was answered OK after fence 2 was granted",
    ),
    "a write under a lease that nobody has": (
        [append("2|w9|z", 6, first=4)],
        "G2: append under 2|w9|z was accepted, and nobody was granted that",
    ),
    "a write between the next holder's by its number": (
        [append(FIRST, 3.9, first=5, batch=2)],
        "G2: append 5 under fence 1 comes after the next grant",
    ),
    "a commit from before its grant": (
        [commit("k3", SECOND, 5, rev=1, first=5, events=[])],
        "G2: commit 1 under fence 2 comes before its own grant",
    ),
    "two commits of one revision": (
        [commit("k3", SECOND, 5, rev=2, first=6, events=[])],
        "G3: revision 2 is the commits ['k2', 'k3']",
    ),
    "a commit that is done twice": (
        [commit("k2", SECOND, 6, rev=3, first=6, events=[])],
        "G3: commit k2 is the revisions [2, 3]",
    ),
    "a revision that is gone": (
        [commit("k3", SECOND, 6, rev=3, first=6, events=[])],
        "G3: revision 3 was acknowledged and the store is at 2",
    ),
    "an event that is gone": (
        [append(SECOND, 6, first=6)],
        "G4: event 6, delta of batch 1 of 2|w2|b, is not there",
    ),
    "a number for two events": (
        [append(SECOND, 6, first=5)],
        "G4: event 5 was given to batch 1 of 2|w2|b and to commit k2",
    ),
    "a batch that was written twice": (
        [append(FIRST, 3.6, first=5)],
        "G4: batch 1 of 1|w1|a stands at [4, 5]",
    ),
    "a submission that is gone": (
        [submit("m4", 9, "ACCEPTED", "3", "6", "", "ready")],
        "G1: m4 was acknowledged and is not known",
    ),
    "a submission that is accepted twice": (
        [submit("m1", 9, "ACCEPTED", "1", "1", "", "ready")],
        "G1: m1 was accepted 2 times",
    ),
    "a repeat with another position": (
        [submit("m1", 9, "DUPLICATE", "7", "1", "", "ready")],
        "G1: m1 has the positions ['1', '7']",
    ),
    "a position for two submissions": (
        [submit("m4", 9, "ACCEPTED", "2", "6", "", "ready")],
        "G1: position 2 was given to m2 and m4",
    ),
    "a repeat that does not match": (
        [submit("m1", 9, "MISMATCH", "0")],
        "G1: m1 does not match itself",
    ),
    "a cancelled submission that ran": (
        [record("control", 1, "CANCELLED", id="c1", target="m1")],
        "G1: m1 was cancelled and is",
    ),
    "a refusal that was told and taken back": (
        [record("told", 9, REFUSED, id="m1")],
        "G1: the caller was told that m1 is refused, and it is accepted",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_call_is_found(name: str) -> None:
    more, expected = BAD[name]
    found = violations([*HISTORY, *more], {"s": FINAL})
    assert any(expected in one for one in found), found


def without(*unwanted: Record) -> list[Record]:
    return [one for one in HISTORY if one not in unwanted]


def test_a_fence_that_nobody_was_granted_is_found() -> None:
    found = violations(HISTORY, {"s": replace(FINAL, fence=3)})
    assert found == ["s: G2: nobody was granted the fences [3]"]


def test_a_revision_that_nobody_committed_is_found() -> None:
    found = violations(HISTORY, {"s": replace(FINAL, rev=3)})
    assert found == ["s: G3: nobody committed the revisions [3]"]


def test_a_hole_in_the_journal_is_found() -> None:
    journal = tuple(event for event in FINAL.journal if event.seq != 1)
    found = violations(HISTORY, {"s": replace(FINAL, journal=journal)})
    assert "s: G4: the journal lacks [1]" in found


def test_a_number_that_stands_twice_is_found() -> None:
    journal = (*FINAL.journal[:4], FINAL.journal[3], FINAL.journal[4])
    found = violations(HISTORY, {"s": replace(FINAL, journal=journal)})
    assert found == ["s: G4: the journal's numbers are [1, 2, 3, 4, 4, 5]"]


def test_what_a_commit_has_dropped_is_no_hole() -> None:
    journal = tuple(event for event in FINAL.journal if event.seq != 4)
    dropping = replace(HISTORY[9], given={**HISTORY[9].given, "drops": [4]})
    history = [*without(HISTORY[9]), dropping]
    assert violations(history, {"s": replace(FINAL, journal=journal)}) == []


def test_an_event_of_an_earlier_holder_behind_a_later_one_is_found() -> None:
    late = FINAL.journal[4].model_copy(update={"fence": 0})
    found = violations(HISTORY, {"s": replace(FINAL, journal=(*FINAL.journal[:4], late))})
    assert "s: G2: the journal's fences go down: [0, 0, 1, 1, 0]" in found


def test_a_batch_that_stands_twice_is_found() -> None:
    """Unless an answer is missing, which may have been that of another batch."""
    twice = (*FINAL.journal[:4], FINAL.journal[3].model_copy(update={"seq": 5}))
    last = FINAL.journal[4].model_copy(update={"seq": 6})
    final = {"s": replace(FINAL, seq=6, journal=(*twice, last))}
    ending = commit("k2", SECOND, 5, rev=2, first=6, events=["turn_completed"])
    history = [*without(HISTORY[9], HISTORY[10]), ending]
    assert violations(history, final) == ["s: G4: event 5, delta, was written by nobody"]
    unanswered = record("append", 3.5, lease=FIRST, batch=2, events=["delta"])
    assert (
        violations([*without(HISTORY[6], HISTORY[9], HISTORY[10]), ending, unanswered], final) == []
    )


def test_a_message_that_stands_twice_is_found() -> None:
    again = FINAL.journal[0].model_copy(update={"seq": 6, "fence": 2})
    found = violations(HISTORY, {"s": replace(FINAL, seq=6, journal=(*FINAL.journal, again))})
    assert found == ["s: G4: the message of m1 stands 2 times"]


def test_a_submission_that_never_ends_is_found() -> None:
    receipts = {**FINAL.receipts, "m4": ended("m4", None, n=3)}
    history = [*HISTORY, submit("m4", 9, "ACCEPTED", "3", "6", "", "ready")]
    final = {"s": replace(FINAL, receipts=receipts)}
    assert "s: G1: m4 has not ended" in violations(history, final)
    unfinished = judge(history, final, ended=False).violations
    assert not any("has not ended" in one for one in unfinished)


def test_a_submission_that_ends_twice_is_found() -> None:
    again = FINAL.journal[4].model_copy(update={"seq": 6, "submission_ids": ("m1",)})
    final = replace(FINAL, seq=6, journal=(*FINAL.journal, again))
    found = violations(HISTORY, {"s": final})
    assert found == [
        "s: G4: event 6, turn_completed, was written by nobody",
        "s: G1: m1 ended 2 times and its receipt says completed",
    ]


def test_an_ending_that_the_receipt_denies_is_found() -> None:
    receipts = {**FINAL.receipts, "m1": ended("m1", Ending.FAILED)}
    found = violations(HISTORY, {"s": replace(FINAL, receipts=receipts)})
    assert found == ["s: G1: m1 ended completed and its receipt says failed"]


def test_a_duplicate_of_nothing_is_found() -> None:
    found = violations(without(HISTORY[0], HISTORY[1]), {"s": FINAL})
    assert "s: G1: m2 is a duplicate of nothing that anybody asked" in found


def test_what_nobody_asked_is_found() -> None:
    found = violations(without(HISTORY[0]), {"s": FINAL})
    assert found == [
        "s: G1: m1 has a receipt and nobody asked for it",
        "s: G1: m1 has ended and nobody asked for it",
    ]


def test_a_refusal_that_is_accepted_is_found() -> None:
    """Unless an answer was lost, which may have been the acceptance."""
    refused = submit("m1", 0, "BUSY", "inbox", "1", "1", "1000")
    history = [refused, *without(HISTORY[0])]
    found = violations(history, {"s": FINAL})
    assert found == ["s: G1: m1 was refused and is accepted"]
    assert violations([submit("m1", 0), *history], {"s": FINAL}) == []


def test_a_session_that_is_gone_is_found() -> None:
    assert violations(HISTORY, {}) == ["s: G1: nothing is known of it at the end"]


LOST = [
    "a fence is granted twice",
    "an append of the holder before",
    "a revision that is gone",
    "an event that is gone",
    "a submission that is gone",
    "a submission that is accepted twice",
]


@pytest.mark.parametrize("name", LOST)
def test_what_a_failover_lost_is_counted_apart(name: str) -> None:
    """Only where the server says that it is another one."""
    more, expected = BAD[name]
    history = [*HISTORY, *more]
    verdict = judge(history, {"s": replace(FINAL, epoch=2)}, forgetful=True)
    assert verdict.violations == []
    assert any(expected in one for one in verdict.window)
    assert str(verdict) == f"0 violations, {len(verdict.window)} in the documented window"
    assert judge(history, {"s": FINAL}, forgetful=True).violations
    assert judge(history, {"s": replace(FINAL, epoch=2)}).violations


def test_no_failover_excuses_a_second_ending() -> None:
    again = FINAL.journal[4].model_copy(update={"seq": 6, "submission_ids": ("m1",)})
    final = replace(FINAL, seq=6, epoch=2, journal=(*FINAL.journal, again))
    verdict = judge(HISTORY, {"s": final}, forgetful=True)
    assert "s: G1: m1 ended 2 times and its receipt says completed" in verdict.violations


def test_records_of_several_processes_are_joined(tmp_path: Path) -> None:
    """A killed process leaves a call without an answer, and perhaps half a line."""
    asked = {"script": "claim", "asks": [["s", {"nonce": "a"}]]}
    first = [
        {"who": "w1:7", "no": 1, **asked, "at": 2.0},
        {"who": "w1:7", "no": 1, "told": [["BUSY"]], "at": 2.5},
        {"who": "w1:7", "no": 2, **asked, "at": 3.0},
    ]
    second = [
        {"who": "w2:8", "no": 1, **asked, "at": 1.0},
        {"who": "w2:8", "no": 1, "told": [["GRANTED", "1", "0", "0", ""]], "at": 1.5},
    ]
    for name, lines in (("first", first), ("second", second)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / name).write_text(text + '{"who": "w1', "utf-8")
    found = read_records(sorted(tmp_path.iterdir()))
    assert [(one.who, one.word, one.answered) for one in found] == [
        ("w2:8", "GRANTED", 1.5),
        ("w1:7", "BUSY", 2.5),
        ("w1:7", "", float("inf")),
    ]
