"""One session that is asked anything in any order, for Hypothesis; the producers' half."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from changeover_shared._store.executor import Executor
from tests.protocol_model.requests import Cancel, Claim, Commit, Delete, Redrive, Stop, Submit
from tests.protocol_model.session import Lease
from tests.support.driving import Driver
from tests.support.fleet import small_settings, stores_on
from tests.support.likeness import check_owners
from tests.support.mirror import MAX_INBOX, Mirror

T = TypeVar("T")

POLICIES = (
    "enqueue", "steer", "join", "latest", "interrupt", "rollback", "reject", "debounce",
)  # fmt: skip
FEW = st.integers(0, 5)
SELDOM = st.integers(0, 9).map(lambda number: number == 9)


class Asked(RuleBasedStateMachine):
    """The session in Redis and in the model, and what was asked of it so far."""

    mirror: Mirror

    def __init__(self, connect: Callable[[], Awaitable[Executor]]) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._connect = connect
        self._boots = [1, 1]
        self._submissions = 0
        self._nonces = 0
        self._commits = 0
        self._submits: list[Submit] = []
        self._cancels: list[Cancel] = []
        self._claims: list[Claim] = []
        self._leases: list[Lease] = []
        self._sent: list[Commit] = []

    async def _opened(self) -> Mirror:
        around = stores_on(await self._connect(), small_settings(max_inbox=MAX_INBOX, partitions=1))
        return Mirror(Driver(await self._stack.enter_async_context(around)))

    def teardown(self) -> None:
        if hasattr(self, "mirror"):
            self._do(check_owners(self.mirror.drive, self.mirror.model))
        self._do(self._stack.aclose())
        self._runner.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    @invariant()
    def both_agree(self) -> None:
        if hasattr(self, "mirror"):
            self._do(self.mirror.compare())


class AskedByProducers(Asked):
    """Any number of producers."""

    def _submit(self, **given: Any) -> None:
        self._submissions += 1
        asked = Submit(0, self._submissions, **given)
        self._submits.append(asked)
        self._do(self.mirror.ask(asked))

    @rule(
        policy=st.sampled_from(POLICIES),
        key=st.sampled_from(("", "a")),
        later=SELDOM,
        may_create=st.booleans(),
    )
    def submit(self, policy: str, key: str, later: bool, may_create: bool) -> None:
        # With a time of its own no client sends one of these: it says itself when it is due.
        due = not later or policy in ("debounce", "interrupt", "rollback")
        self._submit(policy=policy, key=key, due=due, may_create=may_create)

    @precondition(lambda self: len(self.mirror.model.inputs) < MAX_INBOX)
    @rule()
    def submit_plainly(self) -> None:
        self._submit()

    @precondition(lambda self: self.mirror.model.turn)
    @rule(policy=st.sampled_from(("latest", "latest", "steer", "interrupt", "debounce")))
    def submit_beside_a_turn(self, policy: str) -> None:
        """With the key of what the turn holds."""
        self._submit(policy=policy)

    @precondition(lambda self: any(not wait.answer for wait in self.mirror.model.waits))
    @rule(which=FEW)
    def answer_what_is_open(self, which: int) -> None:
        names = [wait.name for wait in self.mirror.model.waits if not wait.answer]
        self._submit(cls="answer", target=names[which % len(names)], may_create=False)

    @precondition(lambda self: self.mirror.model.turn)
    @rule()
    def interrupt_the_turn(self) -> None:
        self._submit(cls="ctl", may_create=False)

    @precondition(lambda self: self.mirror.model.turn or self._submissions % 4 == 0)
    @rule(which=FEW)
    def answer(self, which: int) -> None:
        names = [wait.name for wait in self.mirror.model.waits] or [0]
        self._submit(cls="answer", target=names[which % len(names)], may_create=False)

    @precondition(lambda self: self.mirror.model.turn or self._submissions % 4 == 0)
    @rule(turn=st.sampled_from((0, 0, 1, 2)))
    def interrupt(self, turn: int) -> None:
        self._submit(cls="ctl", target=turn, may_create=False)

    @precondition(lambda self: self._submits)
    @rule(which=FEW, other=SELDOM)
    def repeat_a_submit(self, which: int, other: bool) -> None:
        asked = self._submits[-1 - which % len(self._submits)]
        self._do(self.mirror.ask(asked._replace(content=int(other))))

    @rule(which=FEW, unknown=SELDOM)
    def cancel(self, which: int, unknown: bool) -> None:
        known = [receipt.submission for receipt in self.mirror.model.receipts]
        target = 0 if unknown or not known else known[-1 - which % len(known)]
        self._submissions += 1
        asked = Cancel(0, self._submissions, target)
        self._cancels.append(asked)
        self._do(self.mirror.ask(asked))

    @precondition(lambda self: any(one.waits for one in self.mirror.model.inputs))
    @rule(which=FEW)
    def cancel_what_waits(self, which: int) -> None:
        found = [one.submission for one in self.mirror.model.inputs if one.waits]
        self._submissions += 1
        asked = Cancel(0, self._submissions, found[which % len(found)])
        self._cancels.append(asked)
        self._do(self.mirror.ask(asked))

    @precondition(lambda self: self._cancels)
    @rule(which=FEW)
    def repeat_a_cancel(self, which: int) -> None:
        self._do(self.mirror.ask(self._cancels[-1 - which % len(self._cancels)]))

    @precondition(lambda self: self._may_delete())
    @rule()
    def delete(self) -> None:
        self._do(self.mirror.ask(Delete(0, 0, self.mirror.model.life)))

    @precondition(lambda self: self.mirror.model.status != "none")
    @rule()
    def delete_an_earlier_life(self) -> None:
        self._do(self.mirror.ask(Delete(0, 0, self.mirror.model.life - 1)))

    @precondition(lambda self: self._submissions % 8 == 6)
    @rule(again=SELDOM)
    def stop(self, again: bool) -> None:
        """What an operator does, and its late copy."""
        self._do(self.mirror.ask(Stop(0, self.mirror.model.quarantines + 1 - int(again))))

    @precondition(lambda self: self.mirror.model.quarantines)
    @rule(
        choice=st.sampled_from(("nothing", "nothing", "first", "last", "unknown", "all")),
        earlier=SELDOM,
    )
    def redrive(self, choice: str, earlier: bool) -> None:
        found = [one.n for one in self.mirror.model.inputs if one.kind != "answer"] or [99]
        skip = {"first": found[0], "last": found[-1], "unknown": 99}.get(choice, 0)
        number = self.mirror.model.quarantines - int(earlier)
        self._do(self.mirror.ask(Redrive(0, number, skip, everything=choice == "all")))

    def _may_delete(self) -> bool:
        """What is over, and else seldom, or nothing would come far."""
        over = self.mirror.model.status in ("closed", "deleted")
        return over or (self.mirror.model.status != "none" and self._submissions % 8 == 7)
