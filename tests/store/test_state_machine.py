"""The real scripts do what the model does, whatever is asked in whatever order."""

from __future__ import annotations

from typing import Any

import fakeredis
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from changeover_shared._store.executor import Executor
from tests.protocol_model.requests import Append, Claim, Commit, GiveUp
from tests.protocol_model.session import AHEAD, NEVER, Lease, Wait, waiting
from tests.support.asked import FEW, SELDOM, AskedByProducers
from tests.support.fleet import fake_executor
from tests.support.targets import MADE_OF, Targets

BACK = st.sampled_from((0, 0, 0, 0, 0, 0, 1, 2))
"""Which lease is named: mostly the last one that was granted, else an older one."""
SKEW = st.sampled_from((0, 0, 0, 0, 0, 0, 0, 0, -1, 1))
"""How far the named revision is from the store's."""
KEEPING = st.sampled_from(("hold", "release", "park", "auto"))


class Scripts(AskedByProducers):
    """Two workers as well, their clock and their upkeep."""

    @initialize(far=st.integers(0, 5))
    def open(self, far: int) -> None:
        """A run begins somewhere on the way of a session, so that it comes further."""
        self.mirror = self._do(self._opened())
        if far > 0:
            self._submit()
        if far > 4:
            self._submit()
        if far > 1:
            self.claim(0, False)
            self.start_a_turn(parted=False)
        if far > 4:
            self.end(0, 0, "requeue", "hold", False)
            self.start_a_turn(parted=True)
        elif far > 2:
            self._submit(policy="steer")
        if far == 4:
            self.park(True)

    @rule(worker=st.integers(0, 1), solo=st.booleans())
    def claim(self, worker: int, solo: bool) -> None:
        self._nonces += 1
        self._claim(Claim(0, worker, self._boots[worker], self._nonces, solo))

    @precondition(lambda self: self.mirror.model.status == "ready")
    @rule(worker=st.integers(0, 1))
    def hold(self, worker: int) -> None:
        """What a worker does that holds nothing else."""
        self.claim(worker, True)

    @precondition(lambda self: self._claims)
    @rule(which=FEW)
    def repeat_a_claim(self, which: int) -> None:
        self._claim(self._claims[-1 - which % len(self._claims)])

    def _claim(self, asked: Claim) -> None:
        self._claims.append(asked)
        reply = self._do(self.mirror.ask(asked))
        if reply.word == "GRANTED":
            self._leases.append(Lease(asked.worker, asked.boot, asked.nonce, reply.fence))

    @precondition(lambda self: self._leases)
    @rule(worker=st.integers(0, 1))
    def restart(self, worker: int) -> None:
        self._boots[worker] += 1

    def _lease(self, back: int) -> Lease:
        return self._leases[-1 - min(back, len(self._leases) - 1)]

    @precondition(lambda self: self._leases)
    @rule(back=BACK, ahead=st.sampled_from((0, 1, 1, 1, 2)))
    def append(self, back: int, ahead: int) -> None:
        self._do(self.mirror.ask(Append(0, self._lease(back), self.mirror.model.batch + ahead)))

    @precondition(lambda self: self._leases)
    @rule(back=BACK)
    def renew(self, back: int) -> None:
        self._do(self.mirror.renew(self._lease(back)))

    @precondition(lambda self: self._leases)
    @rule(back=BACK, reason=st.sampled_from(("hand_off", "release", "unable")))
    def give_up(self, back: int, reason: str) -> None:
        self._do(self.mirror.ask(GiveUp(0, self._lease(back), reason)))

    # Commits

    def _commit(self, back: int, skew: int, kind: str, **given: Any) -> None:
        model = self.mirror.model
        self._commits += 1
        turn = model.turns + 1 if kind == "start" else model.turn
        asked = Commit(
            0,
            self._lease(back),
            max(0, model.revision + skew),
            (self._commits, 0, 0),
            turn,
            kind,
            f"state {self._commits}",
            **given,
        )
        self._sent.append(asked)
        self._do(self.mirror.ask(asked))

    @precondition(lambda self: self._leases)
    @rule(back=BACK, skew=SKEW, kind=st.sampled_from(("start", "start", "take")), wrong=SELDOM)
    def take(self, back: int, skew: int, kind: str, wrong: bool) -> None:
        """What waits, up to two; or what does not."""
        found = tuple(one.n for one in waiting(self.mirror.model))[:2]
        self._commit(back, skew, kind, take=(99,) if wrong else found)

    @precondition(lambda self: self._leases and self.mirror.model.turn)
    @rule(
        back=BACK,
        skew=SKEW,
        following=KEEPING,
        opens=st.integers(0, 2),
        kind=st.sampled_from(("approval", "job")),
        deadline=st.booleans(),
    )
    def step(
        self, back: int, skew: int, following: str, opens: int, kind: str, deadline: bool
    ) -> None:
        name = self._commits * 10
        when = AHEAD if deadline else NEVER
        waits = tuple(Wait(name + number, kind, when) for number in range(opens))
        self._commit(back, skew, "step", opens=waits, next=following, progress=True)

    @precondition(lambda self: self._leases and self.mirror.model.waits)
    @rule(back=BACK, which=FEW, following=KEEPING, wrong=SELDOM)
    def take_an_answer(self, back: int, which: int, following: str, wrong: bool) -> None:
        waits = self.mirror.model.waits
        wait = waits[which % len(waits)]
        consumed = ((wait.name, wait.answer + int(wrong)),)
        self._commit(back, 0, "answer", consume=consumed, next=following, progress=True)

    @precondition(lambda self: self._leases and self.mirror.model.waits)
    @rule(back=BACK, which=FEW, following=KEEPING)
    def close_a_wait(self, back: int, which: int, following: str) -> None:
        waits = self.mirror.model.waits
        closes = (waits[which % len(waits)].name,)
        self._commit(back, 0, "recover", closes=closes, next=following)

    @precondition(lambda self: self._leases)
    @rule(
        back=BACK,
        skew=SKEW,
        finish=st.sampled_from(("completed", "failed", "aborted", "requeue")),
        following=st.sampled_from(("release", "release", "auto", "hold")),
        close=SELDOM,
    )
    def end(self, back: int, skew: int, finish: str, following: str, close: bool) -> None:
        progress = finish != "requeue"
        following = "close" if close else following
        self._commit(back, skew, "end", finish=finish, next=following, progress=progress)

    @precondition(lambda self: self._leases and self._commits % 8 == 7)
    @rule(back=BACK)
    def quarantine(self, back: int) -> None:
        self._commit(back, 0, "recover", next="quarantine")

    # What a holder does that is right

    def _live(self) -> bool:
        return self.mirror.model.lease is not None and not self.mirror.model.expired

    def _in_turn(self) -> bool:
        return self._live() and self.mirror.model.turn > 0

    @precondition(lambda self: self._live() and not self.mirror.model.turn)
    @rule(parted=st.booleans())
    def start_a_turn(self, parted: bool) -> None:
        """With all that waits, or a whole group; `parted` names only one of the group."""
        found = waiting(self.mirror.model)
        taken = [one.n for one in found if one.group == found[0].group]
        if parted and found and found[0].group:
            taken = taken[:1]
        self._commit(0, 0, "start", take=tuple(taken))

    @precondition(lambda self: self._in_turn())
    @rule(following=KEEPING, opens=st.integers(0, 2), deadline=st.booleans())
    def go_on(self, following: str, opens: int, deadline: bool) -> None:
        self.step(0, 0, following, opens, "approval", deadline)

    @precondition(lambda self: self._in_turn())
    @rule(deadline=st.booleans())
    def park(self, deadline: bool) -> None:
        self.step(0, 0, "park", 1, "job" if deadline else "approval", deadline)

    @precondition(lambda self: self._in_turn())
    @rule(
        finish=st.sampled_from(("completed", "completed", "failed", "aborted", "requeue")),
        more=st.booleans(),
    )
    def finish(self, finish: str, more: bool) -> None:
        self.end(0, 0, finish, "auto" if more else "release", False)

    @precondition(lambda self: self._sent)
    @rule(which=st.sampled_from((0, 0, 0, 1, 2)))
    def repeat_a_commit(self, which: int) -> None:
        self._do(self.mirror.ask(self._sent[-1 - which % len(self._sent)]))

    # Time and upkeep

    @precondition(lambda self: self.mirror.model.lease and not self.mirror.model.expired)
    @rule()
    def expire(self) -> None:
        self._do(self.mirror.expire())

    @precondition(lambda self: self._leases and self._nonces % 2)
    @rule(back=BACK)
    def evict(self, back: int) -> None:
        self._do(self.mirror.evict(self._lease(back)))

    @rule()
    def pass_times(self) -> None:
        self._do(self.mirror.pass_times())

    @rule()
    def reap(self) -> None:
        self._do(self.mirror.reap())

    @precondition(lambda self: self.mirror.model.status != "none")
    @rule()
    def defer(self) -> None:
        self._do(self.mirror.defer())

    @rule(old=st.booleans())
    def purge(self, old: bool) -> None:
        self._do(self.mirror.purge(old=old))

    @rule(events=st.integers(1, 5))
    def trim(self, events: int) -> None:
        self._do(self.mirror.trim(events))


EXAMPLES = {"fakeredis": 150, MADE_OF: 20}
"""How many runs of up to 40 steps."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("target", EXAMPLES)
def test_the_scripts_do_what_the_model_does(target: str, targets: Targets) -> None:
    """Every reply and every state is the model's, after each step of each run."""

    async def connect() -> Executor:
        if target == "fakeredis":
            return fake_executor(fakeredis.FakeServer())
        targets[target].flush()
        return await Executor.connect(targets[target].url)

    profile = settings(
        max_examples=EXAMPLES[target],
        stateful_step_count=40,
        deadline=None,
        print_blob=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )

    class OnTarget(Scripts):
        def __init__(self) -> None:
            super().__init__(connect)

    run_state_machine_as_test(OnTarget, settings=profile)
