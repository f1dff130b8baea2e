"""What became of the jobs, from what they left behind. Pure."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """A job started or ended, in a process and at a time in seconds."""

    what: str
    job: str
    pid: int
    at: float


@dataclass(frozen=True)
class Kill:
    """The processes of a worker were killed."""

    at: float
    pids: frozenset[int]


@dataclass(frozen=True)
class Verdict:
    """What became of all jobs."""

    accepted: int
    lost: int
    """Accepted, and never ended."""
    repeated: int
    """Ended more than once."""
    interrupted: int
    """How often a kill met a job before its end."""
    went_on: tuple[float, ...]
    """Seconds from such a kill to the next start of that job, where there was one."""

    def line(self) -> tuple[str, ...]:
        """The cells of a table."""
        median, longest = "-", "-"
        if self.went_on:
            median = f"{statistics.median(self.went_on):.1f} s"
            longest = f"{max(self.went_on):.1f} s"
        never = self.interrupted - len(self.went_on)
        numbers = (self.accepted, self.lost, self.repeated, self.interrupted)
        return (*map(str, numbers), median, longest, str(never))


def read_marks(lines: Iterable[str]) -> list[Mark]:
    """The marks of a file."""
    found = []
    for line in lines:
        what, job, pid, at = line.split()
        found.append(Mark(what, job, int(pid), float(at)))
    return found


def judge(accepted: Sequence[str], marks: Sequence[Mark], kills: Sequence[Kill]) -> Verdict:
    """Hold what was accepted against what the jobs and the kills left behind."""
    ends = Counter(mark.job for mark in marks if mark.what == "end")
    starts: defaultdict[str, list[Mark]] = defaultdict(list)
    ended: dict[tuple[str, int], float] = {}
    for mark in marks:
        if mark.what == "start":
            starts[mark.job].append(mark)
        else:
            ended[mark.job, mark.pid] = mark.at
    interrupted, went_on = 0, []
    for job, began in starts.items():
        for one in began:
            if ended.get((job, one.pid), 0.0) >= one.at:
                continue
            kill = next((k for k in kills if one.pid in k.pids and k.at >= one.at), None)
            if kill is None:
                continue
            interrupted += 1
            later = [other.at for other in began if other.at > kill.at]
            if later:
                went_on.append(min(later) - kill.at)
    return Verdict(
        accepted=len(accepted),
        lost=sum(1 for job in accepted if not ends[job]),
        repeated=sum(1 for job in accepted if ends[job] > 1),
        interrupted=interrupted,
        went_on=tuple(went_on),
    )
