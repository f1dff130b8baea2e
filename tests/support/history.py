"""The guarantees, checked against what concurrent callers were told and what the store holds.

Pure. A finding is one line that begins with the guarantee that it breaks. What a failover that
forgot writes brings about (an acknowledged write is gone, a number is given again) is told apart
from what nothing may bring about: with `forgetful` it is counted as the documented window, for
sessions whose server says by its epoch that it is another one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.history_records import REFUSED, Final, Record
from tests.support.history_session import (
    Latest,
    SessionHistory,
    acknowledged_in,
    dropped_from,
    endings_in,
    fence_of,
    has_numbers,
    name_of,
)

ACKNOWLEDGED = ("ACCEPTED", "MERGED", "DUPLICATE")
ASK_AGAIN = ("", "LATE", "ORDER", "ROUTE", "NO_FLEET", "EPOCH", "LAYOUT")
"""Answers that settle nothing: no answer, or one after which the caller asks again."""


class Finding(NamedTuple):
    """One broken guarantee."""

    text: str
    loss: bool = False
    """A server that forgot its newest writes may bring it about."""


@dataclass
class Verdict:
    """What was found."""

    violations: list[str] = field(default_factory=list)
    window: list[str] = field(default_factory=list)
    """What a failover has lost, where that is allowed."""

    def __str__(self) -> str:
        lost = f", {len(self.window)} in the documented window" if self.window else ""
        return f"{len(self.violations)} violations{lost}"


def violations(history: Iterable[Record], final: Mapping[str, Final]) -> list[str]:
    """Everything that is wrong, when no server has forgotten anything."""
    return judge(history, final).violations


def judge(
    history: Iterable[Record],
    final: Mapping[str, Final],
    *,
    forgetful: bool = False,
    ended: bool = True,
) -> Verdict:
    """Check every session. `ended` says that the run was left until everything had ended."""
    by_session: dict[str, list[Record]] = defaultdict(list)
    for record in history:
        by_session[record.session].append(record)
    verdict = Verdict()
    for session in sorted(final.keys() | by_session.keys()):
        if session not in final:
            if any(record.word in ACKNOWLEDGED for record in by_session[session]):
                verdict.violations.append(f"{session}: G1: nothing is known of it at the end")
            continue
        one = SessionHistory(by_session[session], final[session], ended)
        for check in CHECKS:
            for finding in check(one):
                text = f"{session}: {finding.text}"
                if finding.loss and forgetful and one.final.epoch > 1:
                    verdict.window.append(text)
                else:
                    verdict.violations.append(text)
    return verdict


def fences_rise_by_one(one: SessionHistory) -> Iterator[Finding]:
    """G2: each grant has the next fence, and no other grant has it."""
    names: dict[int, set[str]] = defaultdict(set)
    for grant in one.grants:
        names[fence_of(grant.lease)].add(grant.lease)
    for fence, leases in sorted(names.items()):
        if len(leases) > 1:
            yield Finding(f"G2: fence {fence} was granted as {sorted(leases)}", loss=True)
    latest = Latest((grant.answered, fence_of(grant.lease)) for grant in one.grants)
    for grant in one.grants:
        if (before := latest.before(grant.issued)) > fence_of(grant.lease):
            yield Finding(f"G2: {grant.lease} was granted after fence {before} was", loss=True)
    if not names:
        return
    if max(names) > one.final.fence:
        yield Finding(
            f"G2: fence {max(names)} was granted and the store is at {one.final.fence}", loss=True
        )
    skipped = set(range(min(names), one.final.fence + 1)) - names.keys()
    deletions = sum(delete.word in ("", "OK") for delete in one.scripts["delete"])
    # Each of them may have been granted a fence of its own: when the session has been with somebody
    # else meanwhile, the repeat of a claim is granted another one.
    unanswered = sum(not claim.answer for claim in one.scripts["claim"])
    if len(skipped) > unanswered + deletions:
        yield Finding(f"G2: nobody was granted the fences {sorted(skipped)}", loss=True)


def only_the_holder_writes(one: SessionHistory) -> Iterator[Finding]:
    """G2: once a later grant was answered, nothing is accepted under an earlier one."""
    granted = {grant.lease for grant in one.grants}
    latest = Latest((grant.answered, fence_of(grant.lease)) for grant in one.grants)
    for write in one.writes_under_lease:
        what = f"{write.script} under {write.lease}"
        if (before := latest.before(write.issued)) > fence_of(write.lease):
            yield Finding(
                f"G2: {what} was answered {write.word} after fence {before} was granted", loss=True
            )
        if write.lease not in granted and write.lease.split("|")[2] not in one.lost_claims:
            yield Finding(f"G2: {what} was accepted, and nobody was granted that")


def holders_do_not_interleave(one: SessionHistory) -> Iterator[Finding]:
    """G2: what was written under a fence lies between that grant and the next, by number."""
    appends = [append for append in one.appends if has_numbers(append)]
    for what, writes, at, place in (("commit", one.commits, 2, 2), ("append", appends, 1, 3)):
        begins: dict[int, int] = {}
        for grant in one.grants:
            fence, count = fence_of(grant.lease), int(grant.answer[place])
            begins[fence] = min(count, begins.get(fence, count))
        for write in writes:
            number, fence = int(write.answer[at]), fence_of(write.lease)
            later = [begin for other, begin in begins.items() if other > fence]
            name = f"G2: {what} {number} under fence {fence}"
            if number > min(later, default=number):
                yield Finding(f"{name} comes after the next grant", loss=True)
            if number <= begins.get(fence, 0):
                yield Finding(f"{name} comes before its own grant", loss=True)


def revisions_are_dense(one: SessionHistory) -> Iterator[Finding]:
    """G3: each revision is one commit, each commit one revision."""
    commits: dict[int, set[str]] = defaultdict(set)
    revs: dict[str, set[int]] = defaultdict(set)
    for commit in one.commits:
        commits[int(commit.answer[2])].add(commit.given["commit_id"])
        revs[commit.given["commit_id"]].add(int(commit.answer[2]))
    for rev, ids in sorted(commits.items()):
        if len(ids) > 1:
            yield Finding(f"G3: revision {rev} is the commits {sorted(ids)}", loss=True)
    for commit_id, found in revs.items():
        if len(found) > 1:
            yield Finding(f"G3: commit {commit_id} is the revisions {sorted(found)}")
    if not commits:
        return
    if max(commits) > one.final.rev:
        yield Finding(
            f"G3: revision {max(commits)} was acknowledged and the store is at {one.final.rev}",
            loss=True,
        )
    nobody = set(range(min(commits), one.final.rev + 1)) - commits.keys()
    if len(nobody) > len(one.lost_commits):
        yield Finding(f"G3: nobody committed the revisions {sorted(nobody)}")


def events_are_dense(one: SessionHistory) -> Iterator[Finding]:
    """G4: the journal has every number once, in the order of fences."""
    journal, final = one.final.journal, one.final
    seqs = [event.seq for event in journal]
    if seqs != sorted(set(seqs)):
        yield Finding(f"G4: the journal's numbers are {seqs}")
    missing = set(range(final.first_seq, final.seq + 1)) - set(seqs) - dropped_from(one)
    if missing:
        yield Finding(f"G4: the journal lacks {sorted(missing)}")
    fences = [event.fence for event in journal]
    if fences != sorted(fences):
        yield Finding(f"G2: the journal's fences go down: {fences}")


def acknowledged_events_are_there(one: SessionHistory) -> Iterator[Finding]:
    """G4: what was acknowledged is in the journal under its number, and was given it alone."""
    kept = {event.seq: event for event in one.final.journal}
    dropped = dropped_from(one)
    given: dict[int, str] = {}
    places: dict[str, set[int]] = defaultdict(set)
    for name, first, fence, kinds in acknowledged_in(one):
        places[name].add(first)
        for seq, kind in enumerate(kinds, first):
            if given.setdefault(seq, name) != name:
                yield Finding(f"G4: event {seq} was given to {given[seq]} and to {name}", loss=True)
            if seq < one.final.first_seq or seq in dropped:
                continue
            event = kept.get(seq)
            if event is None or event.type != kind or (fence and event.fence != fence):
                yield Finding(f"G4: event {seq}, {kind} of {name}, is not there", loss=True)
    for name, firsts in places.items():
        if len(firsts) > 1:
            yield Finding(f"G4: {name} stands at {sorted(firsts)}", loss=True)


def events_have_one_writer(one: SessionHistory) -> Iterator[Finding]:
    """G4: what holders write stands once: no event is there that no acknowledged write explains."""
    told = {
        seq
        for _, first, _, kinds in acknowledged_in(one)
        for seq in range(first, first + len(kinds))
    }
    writes = [*one.scripts["append"], *one.scripts["commit"]]
    kinds = {kind for write in writes for kind in write.given.get("events", ())}
    known = {
        name_of(write) for write in (*one.appends, *one.commits) if "DROPPED" not in write.answer
    }
    # Of a write without an answer, or with some events left out, nobody knows the numbers.
    open_fences = {
        fence_of(write.lease)
        for write in writes
        if name_of(write) not in known and (not write.answer or "DROPPED" in write.answer)
    }
    for event in one.final.journal:
        if event.type in kinds and event.seq not in told and event.fence not in open_fences:
            yield Finding(f"G4: event {event.seq}, {event.type}, was written by nobody")
    said = Counter(e.submission_id for e in one.final.journal if e.type == "message")
    for id, count in said.items():
        if count > 1:
            yield Finding(f"G4: the message of {id} stands {count} times")


def submissions_end_once(one: SessionHistory) -> Iterator[Finding]:
    """G1: what was acknowledged is known and ends once, as its receipt says."""
    ends = endings_in(one.final.journal)
    for id, records in one.submits.items():
        told = [record for record in records if record.word in ACKNOWLEDGED]
        state = one.final.receipts.get(id)
        if told and state is None:
            yield Finding(f"G1: {id} was acknowledged and is not known", loss=True)
        if state is None or not (told or any(not record.answer for record in records)):
            continue
        if one.ended and state.ending is None:
            yield Finding(f"G1: {id} has not ended")
        if state.end_seq and state.end_seq < one.final.first_seq:
            continue
        count = len(ends[id])
        if records[0].given["class"] == "turn":
            wrong = count != (state.ending is not None)
        else:
            wrong = count > 1
        if wrong:
            yield Finding(f"G1: {id} ended {count} times and its receipt says {state.ending}")
        elif count and ends[id][0] != state.ending:
            yield Finding(f"G1: {id} ended {ends[id][0]} and its receipt says {state.ending}")
    for cancel in one.scripts["control"]:
        target = one.final.receipts.get(cancel.given["target"])
        if cancel.word == "CANCELLED" and (target is None or target.ending != "cancelled"):
            yield Finding(f"G1: {cancel.given['target']} was cancelled and is {target}", loss=True)


def answers_agree(one: SessionHistory) -> Iterator[Finding]:
    """G1: a submission is accepted once, and every repeat is told the same."""
    positions: dict[str, str] = {}
    for id, records in one.submits.items():
        first = [record for record in records if record.word in ("ACCEPTED", "MERGED")]
        if len(first) > 1:
            yield Finding(f"G1: {id} was accepted {len(first)} times", loss=True)
        told = {
            record.answer[1] if record.word != "MERGED" else "0"
            for record in records
            if record.word in ACKNOWLEDGED
        }
        if len(told) > 1:
            yield Finding(f"G1: {id} has the positions {sorted(told)}", loss=True)
        if told and not first and all(record.answer for record in records):
            yield Finding(f"G1: {id} is a duplicate of nothing that anybody asked")
        digests = {record.given["digest"] for record in records}
        if len(digests) == 1 and any(record.word == "MISMATCH" for record in records):
            yield Finding(f"G1: {id} does not match itself")
        for n in told - {"0"}:
            if positions.setdefault(n, id) != id:
                yield Finding(f"G1: position {n} was given to {positions[n]} and {id}", loss=True)


def refusals_stay(one: SessionHistory) -> Iterator[Finding]:
    """G1: what was refused never runs, and nothing runs that nobody asked."""
    asked = one.submits.keys() | {cancel.given["id"] for cancel in one.scripts["control"]}
    for id in sorted(one.final.receipts.keys() - asked):
        yield Finding(f"G1: {id} has a receipt and nobody asked for it")
    for id in sorted(endings_in(one.final.journal).keys() - asked):
        yield Finding(f"G1: {id} has ended and nobody asked for it")
    for id, records in one.submits.items():
        refused = not any(record.word in (*ACKNOWLEDGED, *ASK_AGAIN) for record in records)
        if id in one.final.receipts and refused:
            yield Finding(f"G1: {id} was refused and is accepted")
    for told in one.scripts["told"]:
        id = told.given["id"]
        if told.word == REFUSED and id in one.final.receipts:
            yield Finding(f"G1: the caller was told that {id} is refused, and it is accepted")


CHECKS: Sequence[Callable[[SessionHistory], Iterator[Finding]]] = (
    fences_rise_by_one,
    only_the_holder_writes,
    holders_do_not_interleave,
    revisions_are_dense,
    events_are_dense,
    acknowledged_events_are_there,
    events_have_one_writer,
    submissions_end_once,
    answers_agree,
    refusals_stay,
)
