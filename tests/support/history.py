"""The guarantees, checked against what concurrent callers were told and what the store holds.

Pure. A finding is one line that begins with the guarantee that it breaks. What a failover that
forgot writes brings about (an acknowledged write is gone, a number is given again) is told apart
from what nothing may bring about: with `forgetful` it is counted as the documented window, for
sessions whose server says by its epoch that it is another one.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from changeover_shared._events import Event, ending_of
from changeover_worker.testing._promises import removed
from tests.support.history_records import REFUSED, Final, Record

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
        one = _Session(by_session[session], final[session], ended)
        for check in CHECKS:
            for finding in check(one):
                text = f"{session}: {finding.text}"
                if finding.loss and forgetful and one.final.epoch > 1:
                    verdict.window.append(text)
                else:
                    verdict.violations.append(text)
    return verdict


class _Session:
    """One session's calls, sorted by what they are."""

    def __init__(self, records: Sequence[Record], final: Final, ended: bool) -> None:
        self.final = final
        self.ended = ended
        self.scripts: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            # A commit that only ends things has a script of its own, with the same answers.
            name = "commit" if record.script == "settle" else record.script
            self.scripts[name].append(record)
        self.grants = [one for one in self.scripts["claim"] if one.word == "GRANTED"]
        self.lost_claims = self._unresolved("claim", "nonce", ("GRANTED",))
        self.lost_commits = self._unresolved("commit", "commit_id", ("OK", "REPLAY"))
        self.commits = [one for one in self.scripts["commit"] if one.word in ("OK", "REPLAY")]
        batches = ("OK", "DROPPED", "ALREADY")
        self.appends = [one for one in self.scripts["append"] if one.word in batches]
        self.submits: dict[str, list[Record]] = defaultdict(list)
        for record in self.scripts["submit"]:
            self.submits[record.given["id"]].append(record)

    def _unresolved(self, script: str, name: str, known: Sequence[str]) -> set[str]:
        """Requests that may have been done although nobody was told."""
        records = self.scripts[script]
        told = {one.given[name] for one in records if one.word in known}
        return {one.given[name] for one in records if not one.answer} - told

    @property
    def writes_under_lease(self) -> Iterator[Record]:
        """Calls that only the holder is answered like this."""
        yield from self.appends
        yield from (one for one in self.commits if one.word == "OK" or one.answer[1] == "held")
        yield from (one for one in self.scripts["renew"] if one.word == "OK")


class _Latest:
    """The highest value that had been answered before a moment."""

    def __init__(self, answered: Iterable[tuple[float, int]]) -> None:
        self._at: list[float] = []
        self._top: list[int] = []
        for at, value in sorted(answered):
            self._at.append(at)
            self._top.append(max(value, self._top[-1] if self._top else 0))

    def before(self, moment: float) -> int:
        i = bisect.bisect_left(self._at, moment)
        return self._top[i - 1] if i else 0


def fences_rise_by_one(one: _Session) -> Iterator[Finding]:
    """G2: each grant has the next fence, and no other grant has it."""
    names: dict[int, set[str]] = defaultdict(set)
    for grant in one.grants:
        names[_fence(grant.lease)].add(grant.lease)
    for fence, leases in sorted(names.items()):
        if len(leases) > 1:
            yield Finding(f"G2: fence {fence} was granted as {sorted(leases)}", loss=True)
    latest = _Latest((grant.answered, _fence(grant.lease)) for grant in one.grants)
    for grant in one.grants:
        if (before := latest.before(grant.issued)) > _fence(grant.lease):
            yield Finding(f"G2: {grant.lease} was granted after fence {before} was", loss=True)
    if not names:
        return
    if max(names) > one.final.fence:
        yield Finding(
            f"G2: fence {max(names)} was granted and the store is at {one.final.fence}", loss=True
        )
    skipped = set(range(min(names), one.final.fence + 1)) - names.keys()
    deletions = sum(delete.word in ("", "OK") for delete in one.scripts["delete"])
    if len(skipped) > len(one.lost_claims) + deletions:
        yield Finding(f"G2: nobody was granted the fences {sorted(skipped)}", loss=True)


def only_the_holder_writes(one: _Session) -> Iterator[Finding]:
    """G2: once a later grant was answered, nothing is accepted under an earlier one."""
    granted = {grant.lease for grant in one.grants}
    latest = _Latest((grant.answered, _fence(grant.lease)) for grant in one.grants)
    for write in one.writes_under_lease:
        what = f"{write.script} under {write.lease}"
        if (before := latest.before(write.issued)) > _fence(write.lease):
            yield Finding(
                f"G2: {what} was answered {write.word} after fence {before} was granted", loss=True
            )
        if write.lease not in granted and write.lease.split("|")[2] not in one.lost_claims:
            yield Finding(f"G2: {what} was accepted, and nobody was granted that")


def holders_do_not_interleave(one: _Session) -> Iterator[Finding]:
    """G2: what was written under a fence lies between that grant and the next, by number."""
    appends = [append for append in one.appends if _has_numbers(append)]
    for what, writes, at, place in (("commit", one.commits, 2, 2), ("append", appends, 1, 3)):
        begins: dict[int, int] = {}
        for grant in one.grants:
            fence, count = _fence(grant.lease), int(grant.answer[place])
            begins[fence] = min(count, begins.get(fence, count))
        for write in writes:
            number, fence = int(write.answer[at]), _fence(write.lease)
            later = [begin for other, begin in begins.items() if other > fence]
            name = f"G2: {what} {number} under fence {fence}"
            if number > min(later, default=number):
                yield Finding(f"{name} comes after the next grant", loss=True)
            if number <= begins.get(fence, 0):
                yield Finding(f"{name} comes before its own grant", loss=True)


def revisions_are_dense(one: _Session) -> Iterator[Finding]:
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


def events_are_dense(one: _Session) -> Iterator[Finding]:
    """G4: the journal has every number once, in the order of fences."""
    journal, final = one.final.journal, one.final
    seqs = [event.seq for event in journal]
    if seqs != sorted(set(seqs)):
        yield Finding(f"G4: the journal's numbers are {seqs}")
    missing = set(range(final.first_seq, final.seq + 1)) - set(seqs) - _dropped(one)
    if missing:
        yield Finding(f"G4: the journal lacks {sorted(missing)}")
    fences = [event.fence for event in journal]
    if fences != sorted(fences):
        yield Finding(f"G2: the journal's fences go down: {fences}")


def acknowledged_events_are_there(one: _Session) -> Iterator[Finding]:
    """G4: what was acknowledged is in the journal under its number, and was given it alone."""
    kept = {event.seq: event for event in one.final.journal}
    dropped = _dropped(one)
    given: dict[int, str] = {}
    places: dict[str, set[int]] = defaultdict(set)
    for name, first, fence, kinds in _acknowledged(one):
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


def events_have_one_writer(one: _Session) -> Iterator[Finding]:
    """G4: what holders write stands once: no event is there that no acknowledged write explains."""
    told = {
        seq for _, first, _, kinds in _acknowledged(one) for seq in range(first, first + len(kinds))
    }
    writes = [*one.scripts["append"], *one.scripts["commit"]]
    kinds = {kind for write in writes for kind in write.given.get("events", ())}
    known = {
        _name(write) for write in (*one.appends, *one.commits) if "DROPPED" not in write.answer
    }
    # Of a write without an answer, or with some events left out, nobody knows the numbers.
    open_fences = {
        _fence(write.lease)
        for write in writes
        if _name(write) not in known and (not write.answer or "DROPPED" in write.answer)
    }
    for event in one.final.journal:
        if event.type in kinds and event.seq not in told and event.fence not in open_fences:
            yield Finding(f"G4: event {event.seq}, {event.type}, was written by nobody")
    said = Counter(e.submission_id for e in one.final.journal if e.type == "message")
    for id, count in said.items():
        if count > 1:
            yield Finding(f"G4: the message of {id} stands {count} times")


def submissions_end_once(one: _Session) -> Iterator[Finding]:
    """G1: what was acknowledged is known and ends once, as its receipt says."""
    ends = _ends(one.final.journal)
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


def answers_agree(one: _Session) -> Iterator[Finding]:
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


def refusals_stay(one: _Session) -> Iterator[Finding]:
    """G1: what was refused never runs, and nothing runs that nobody asked."""
    asked = one.submits.keys() | {cancel.given["id"] for cancel in one.scripts["control"]}
    for id in sorted(one.final.receipts.keys() - asked):
        yield Finding(f"G1: {id} has a receipt and nobody asked for it")
    for id in sorted(_ends(one.final.journal).keys() - asked):
        yield Finding(f"G1: {id} has ended and nobody asked for it")
    for id, records in one.submits.items():
        refused = not any(record.word in (*ACKNOWLEDGED, *ASK_AGAIN) for record in records)
        if id in one.final.receipts and refused:
            yield Finding(f"G1: {id} was refused and is accepted")
    for told in one.scripts["told"]:
        id = told.given["id"]
        if told.word == REFUSED and id in one.final.receipts:
            yield Finding(f"G1: the caller was told that {id} is refused, and it is accepted")


CHECKS: Sequence[Callable[[_Session], Iterator[Finding]]] = (
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


def _fence(lease: str) -> int:
    return int(lease.partition("|")[0])


def _name(write: Record) -> str:
    """A write, by what its repeats have in common."""
    if write.script == "append":
        return f"batch {write.given['batch']} of {write.lease}"
    return f"commit {write.given['commit_id']}"


def _has_numbers(append: Record) -> bool:
    """Whether it is known which numbers its events have."""
    return bool(append.given.get("events")) and "DROPPED" not in append.answer


def _dropped(one: _Session) -> set[int]:
    """Numbers of events that a commit has taken out of the journal."""
    told = (record.given.get("drops", ()) for record in one.scripts["commit"])
    return {seq for drops in told for seq in drops} | removed(one.final.journal)


def _acknowledged(one: _Session) -> Iterator[tuple[str, int, int, Sequence[str]]]:
    """Acknowledged writes: their name, first number, fence and kinds of events."""
    for append in one.appends:
        if _has_numbers(append):
            kinds = append.given["events"]
            yield _name(append), int(append.answer[1]), _fence(append.lease), kinds
    for commit in one.commits:
        kinds = commit.given.get("events", ())
        yield _name(commit), int(commit.answer[3]), _fence(commit.lease), kinds
    for id, records in one.submits.items():
        for record in records:
            if record.word in ("ACCEPTED", "DUPLICATE"):
                kinds = record.given.get("events", ())
                yield f"submission {id}", int(record.answer[2]), 0, kinds


def _ends(journal: Iterable[Event]) -> dict[str, list[str]]:
    """How often and how each submission ended, by the journal."""
    found: dict[str, list[str]] = defaultdict(list)
    for event in journal:
        named = {*getattr(event, "submission_ids", ()), event.submission_id} - {None}
        for id in named:
            if (ending := ending_of(event, str(id))) is not None:
                found[str(id)].append(ending)
    return found
