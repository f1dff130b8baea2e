"""One session of a history, sorted by what the checks ask about. Pure."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from changeover_shared._events import Event, ending_of
from changeover_worker.testing._promises import removed
from tests.support.history_records import Final, Record


class SessionHistory:
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


class Latest:
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


def fence_of(lease: str) -> int:
    return int(lease.partition("|")[0])


def name_of(write: Record) -> str:
    """A write, by what its repeats have in common."""
    if write.script == "append":
        return f"batch {write.given['batch']} of {write.lease}"
    return f"commit {write.given['commit_id']}"


def has_numbers(append: Record) -> bool:
    """Whether it is known which numbers its events have."""
    return bool(append.given.get("events")) and "DROPPED" not in append.answer


def dropped_from(one: SessionHistory) -> set[int]:
    """Numbers of events that a commit has taken out of the journal."""
    told = (record.given.get("drops", ()) for record in one.scripts["commit"])
    return {seq for drops in told for seq in drops} | removed(one.final.journal)


def acknowledged_in(one: SessionHistory) -> Iterator[tuple[str, int, int, Sequence[str]]]:
    """Acknowledged writes: their name, first number, fence and kinds of events."""
    for append in one.appends:
        if has_numbers(append):
            kinds = append.given["events"]
            yield name_of(append), int(append.answer[1]), fence_of(append.lease), kinds
    for commit in one.commits:
        kinds = commit.given.get("events", ())
        yield name_of(commit), int(commit.answer[3]), fence_of(commit.lease), kinds
    for id, records in one.submits.items():
        for record in records:
            if record.word in ("ACCEPTED", "DUPLICATE"):
                kinds = record.given.get("events", ())
                yield f"submission {id}", int(record.answer[2]), 0, kinds


def endings_in(journal: Iterable[Event]) -> dict[str, list[str]]:
    """How often and how each submission ended, by the journal."""
    found: dict[str, list[str]] = defaultdict(list)
    for event in journal:
        named = {*getattr(event, "submission_ids", ()), event.submission_id} - {None}
        for id in named:
            if (ending := ending_of(event, str(id))) is not None:
                found[str(id)].append(ending)
    return found
