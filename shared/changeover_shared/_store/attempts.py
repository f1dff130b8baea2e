"""A batch of submissions over its attempts: which answers count by now, and which may change.

Pure but for the clock. A refusal counts only once no earlier copy of the request can run any more.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from changeover_shared._errors import Busy, ChangeoverError, StoreUnavailable
from changeover_shared._server.foreign_errors import MemoryFull
from changeover_shared._store import decode
from changeover_shared._store.payloads import Payloads
from changeover_shared._store.records import NoTurn, Submit, Submitted

OUT_OF_MEMORY_PAUSE: Final = timedelta(seconds=5)
"""When to try again what Redis had no memory for."""

Answer = Submitted | NoTurn | ChangeoverError


class Attempts:
    """One batch over its attempts: what is answered, what is open, what may still run."""

    def __init__(self, batch: Sequence[Submit], deadline: float) -> None:
        self.batch = batch
        self.deadline = deadline
        self.answers: list[Answer] = [unanswered(one, "no answer in time") for one in batch]
        self.open = dict.fromkeys(range(len(batch)))
        self.accepted: dict[int, Submitted] = {}
        """What is written, however safely."""
        self.repeat_at_once = False
        self._unresolved: dict[int, int] = {}
        self._refused: set[str] = set()
        self._plain: set[int] = set()
        self._tries = 0

    def in_order(self) -> Iterator[tuple[int, str]]:
        """What is open, each with the submission of its session that it must not overtake.

        Something may send one submission of a pipeline back (a script that the server forgot, a
        partition that is not there yet) and let the next one pass. Once one of a session is
        refused for good there is nothing left to overtake.
        """
        before: dict[str, str] = {}
        for i in self.open:
            session_id, submission_id = self.batch[i].session_id, self.batch[i].submission_id
            yield i, "" if session_id in self._refused else before.get(session_id, "")
            before[session_id] = submission_id

    def digest(self, i: int, payloads: Payloads) -> str:
        """What the receipt of a submission holds, or would hold."""
        plain = self.batch[i].digest
        return plain if i in self._plain else payloads.digest(plain)

    def was_plain(self, i: int, reply: list[Any]) -> bool:
        """Whether the id was accepted with this content before the fleet began to encrypt, which
        only a question with the plain digest is answered with."""
        plain: bool = reply[0] == "MISMATCH" and reply[2].decode() == self.batch[i].digest
        if plain:
            self._plain.add(i)
        return plain

    def take(self, i: int, reply: list[Any] | Exception, not_after: int, now: int) -> None:
        """Take the answer of one submission, unless it may still change."""
        if isinstance(reply, MemoryFull):
            self._refuse(i, _out_of_memory(self.batch[i]), now)
            return
        if isinstance(reply, StoreUnavailable):
            self.answers[i] = unanswered(self.batch[i], reply.reason)
            self._unresolved[i] = max(not_after, self._unresolved.get(i, 0))
            return
        if isinstance(reply, ChangeoverError):
            self._close(i, reply)
            return
        if isinstance(reply, Exception):
            raise reply
        if reply[0] == "LATE":
            return
        answer = decode.submitted(reply, self.batch[i])
        if isinstance(answer, Submitted):
            self._close(i, answer)
        else:
            self._refuse(i, answer, now)

    def _refuse(self, i: int, answer: NoTurn | ChangeoverError, now: int) -> None:
        if self._unresolved.get(i, 0) <= now:
            self._close(i, answer)
        else:
            # An earlier copy of it may still be accepted: this "no" does not count yet.
            self.answers[i] = answer

    def reopen(self, i: int) -> None:
        """Ask again for something that was accepted by a server that is another one by now."""
        del self.accepted[i]
        self.answers[i] = unanswered(self.batch[i], "its server was replaced meanwhile")
        self.open[i] = None

    def lost(self, error: StoreUnavailable) -> None:
        """Nothing was sent, or nothing came back, for the whole attempt."""
        for i in self.open:
            self.answers[i] = unanswered(self.batch[i], error.reason)

    @property
    def repeated(self) -> bool:
        """Whether something was sent before."""
        return self._tries > 0

    def late(self) -> bool:
        """Whether the time for all attempts is over."""
        return time.monotonic() >= self.deadline

    def give_up(self) -> None:
        """Stop asking: what is open keeps the answer that it has."""
        self.open.clear()

    def pause(self) -> float:
        """Seconds until the next attempt."""
        self._tries += 1
        if self.repeat_at_once:
            self.repeat_at_once = False
            return 0.0
        return float(min(1.0, 0.05 * 2**self._tries)) * random.uniform(0.5, 1.0)

    def _close(self, i: int, answer: Answer) -> None:
        self.answers[i] = answer
        if isinstance(answer, Submitted):
            self.accepted[i] = answer
        else:
            self._refused.add(self.batch[i].session_id)
        del self.open[i]


def unanswered(asked: Submit, reason: str) -> StoreUnavailable:
    return StoreUnavailable(reason=reason, submission_id=asked.submission_id)


def _out_of_memory(asked: Submit) -> Busy:
    """The same refusal as under pressure; how much memory there is, the server does not say."""
    return Busy(
        session_id=asked.session_id,
        scope="memory",
        depth=0,
        limit=0,
        retry_after=OUT_OF_MEMORY_PAUSE,
    )
