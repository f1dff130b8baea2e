"""Everything that can happen next in a world."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.protocol_model.holder import CALL, next_request, runs_tool
from tests.protocol_model.invariants import (
    REFUSED,
    check_holder,
    check_step,
    unknown_to_holder,
)
from tests.protocol_model.naming import fresh_nonce
from tests.protocol_model.requests import (
    Append,
    Cancel,
    Claim,
    Commit,
    Delete,
    GiveUp,
    Guard,
    Redrive,
    Reply,
    Request,
    Stop,
    Submit,
)
from tests.protocol_model.running import GRANTING, name_of, run_script
from tests.protocol_model.session import AHEAD, PASSED, Lease, Session, receipt_of
from tests.protocol_model.worker_scripts import defer, purge, reap
from tests.protocol_model.world import Act, Broken, Holding, Scenario, Worker, World


class Step(NamedTuple):
    label: str
    world: World
    fair: bool = True
    """It happens at last, if it stays possible; the others are faults."""


@dataclass(frozen=True)
class Steps:
    """The steps of one scenario. `seen` is told of every reply."""

    scenario: Scenario
    seen: Callable[[str, str], None] = lambda name, word: None

    def of(self, world: World) -> Iterator[Step]:
        for index, word in enumerate(world.words):
            if not word:
                yield from self._producer(world, index)
        yield from self._late_copies(world)
        for index, worker in enumerate(world.workers):
            if worker.asking is None:
                yield from self._looks(world, index)
            else:
                yield from self._worker(world, index, worker.asking)
        for index, session in enumerate(world.sessions):
            yield from self._upkeep(world, index, session)
            yield from self._time(world, index, session)
            yield from self._operator(world, index, session)
        yield from self._replica(world)

    # Requests

    def _execute(self, world: World, asked: Request, *, current: bool) -> tuple[World, Reply]:
        before = world.sessions[asked.session]
        after, reply = run_script(before, asked, self.scenario.rules)
        self.seen(name_of(asked), f"{reply.word} {reply.detail}".strip())
        check_step(before, after, asked, reply, self.scenario.rules)
        if current:
            check_holder(before, asked, reply)
        world = world.with_session(asked.session, after)
        if isinstance(asked, Commit) and asked.opens and reply.word == "OK":
            known = {*world.asked, (asked.session, after.turn)}
            world = world._replace(asked=tuple(sorted(known)))
        return world, reply

    def _producer(self, world: World, index: int) -> Iterator[Step]:
        asked = self._request_of(world, index)
        if asked is None:
            return
        after, reply = self._execute(world, asked, current=True)
        name = f"producer {index}: {name_of(asked)} -> {reply.word}"
        durable = self.scenario.rules.keep(Guard.DURABLE_SUBMIT)
        told = after
        if self.scenario.replica and durable and reply.word not in REFUSED:
            told = after._replace(replica=after.sessions)
        act = self.scenario.acts[index]
        again_later = act.kind == "answer" and reply.word == "BUSY"
        if not again_later:
            yield Step(name, told.with_word(index, reply.word), fair=not act.optional)
        if world.may("lose"):
            yield Step(f"{name}, reply lost", after.spend("lose"), fair=False)
        if world.may("resend"):
            left = world.with_copy("producer", index, asked).spend("resend")
            yield Step(f"producer {index} times out, its copy stays on its way", left, fair=False)

    def _request_of(self, world: World, index: int) -> Request | None:
        act: Act = self.scenario.acts[index]
        if not all(world.words[earlier] for earlier in act.after):
            return None
        match act.kind:
            case "message":
                return Submit(act.session, index, policy=act.policy, due=act.due)
            case "interrupt":
                return Submit(act.session, index, "ctl", target=act.about, may_create=False)
            case "cancel":
                return Cancel(act.session, index, act.about)
            case "delete":
                return Delete(act.session, index, act.about)
            case _:
                if (act.session, act.about) not in world.asked:
                    return None
                return Submit(act.session, index, "answer", target=act.about, may_create=False)

    def _late_copies(self, world: World) -> Iterator[Step]:
        for place, (sender, index, asked) in enumerate(world.network):
            if place and world.network[place] == world.network[place - 1]:
                continue
            rest = world._replace(network=(*world.network[:place], *world.network[place + 1 :]))
            late = self._is_late(world, sender, index, asked)
            sent = asked._replace(late=True) if late and isinstance(asked, GRANTING) else asked
            after, reply = self._execute(rest, sent, current=False)
            name = f"a late copy of {sender} {index} runs: {name_of(asked)} -> {reply.word}"
            yield Step(name, after, fair=False)

    def _is_late(self, world: World, sender: str, index: int, asked: Request) -> bool:
        """Its sender waits no more, so its not-after has passed."""
        if sender == "producer":
            return bool(world.words[index])
        if sender == "operator" or not isinstance(asked, Claim):
            return False
        worker = world.workers[index]
        return worker.boot == asked.boot and worker.asking != asked

    # Workers

    def _looks(self, world: World, index: int) -> Iterator[Step]:
        boot = world.workers[index].boot
        for number, session in enumerate(world.sessions):
            if session.status == "ready":
                asked = Claim(number, index, boot, fresh_nonce(world))
                decided = world.with_worker(index, Worker(boot, None, asked))
                yield Step(f"worker {index} decides to claim session {number}", decided)

    def _worker(self, world: World, index: int, asked: Request) -> Iterator[Step]:
        boot, holding, _ = world.workers[index]
        after, reply = self._execute(world, asked, current=True)
        told = f"worker {index}: {name_of(asked)} -> {reply.word} {reply.detail}"
        heard = after
        calls = isinstance(asked, Commit) and asked.checkpoint == CALL
        if self.scenario.replica and calls and self.scenario.rules.keep(Guard.DURABLE_CALL):
            heard = after._replace(replica=after.sessions)
        for following in self._hear(heard, index, asked, reply):
            yield Step(told, following)
        if world.may("lose"):
            yield Step(f"{told}, reply lost", after.spend("lose"), fair=False)
        late = world.with_copy("worker", index, asked)
        if world.may("resend"):
            name = f"worker {index} times out on {name_of(asked)}, its copy stays on its way"
            yield Step(name, late.spend("resend"), fair=False)
        if world.may("crash"):
            crashed = late.with_worker(index, Worker(boot + 1)).spend("crash")
            yield Step(f"worker {index} crashes in {name_of(asked)}", crashed, fair=False)
        if not world.may("drain"):
            return
        name = f"worker {index} is drained with {name_of(asked)} on its way"
        if holding is not None and not isinstance(asked, GiveUp):
            gives_up = Worker(boot, holding, GiveUp(holding.session, holding.lease))
            yield Step(name, late.with_worker(index, gives_up).spend("drain"), fair=False)
        resolves = self.scenario.rules.keep(Guard.DRAIN_RESOLVES_CLAIM)
        if isinstance(asked, Claim) and not resolves:
            yield Step(name, late.with_worker(index, Worker(boot)).spend("drain"), fair=False)

    def _hear(
        self, world: World, index: int, asked: Request, reply: Reply
    ) -> Iterator[World]:  # fmt: skip
        """The worker reads the reply and moves on."""
        boot, holding, _ = world.workers[index]
        idle = world.with_worker(index, Worker(boot))
        match asked:
            case Claim() if reply.word == "GRANTED" and reply.view is not None:
                lease = Lease(index, boot, asked.nonce, reply.fence)
                if world.sessions[asked.session].lease != lease:
                    raise Broken("I15 a grant that is not in the store")
                granted = Holding(asked.session, lease, reply.view, "claimed")
                yield from self._goes_on(world, index, granted)
            case Append() if reply.word in ("OK", "ALREADY") and holding is not None:
                yield from self._goes_on(world, index, holding._replace(streamed=True))
            case Commit() if holding is not None and reply.view is not None:
                following = self._after_commit(world, holding, asked, reply)
                if following is None:
                    yield idle
                else:
                    yield from self._goes_on(world, index, following)
            case _:
                yield idle

    def _after_commit(
        self, world: World, holding: Holding, asked: Commit, reply: Reply
    ) -> Holding | None:
        assert reply.view is not None
        if reply.word in ("OK", "REPLAY"):
            if reply.detail != "held":
                return None
            if world.sessions[asked.session].lease != asked.lease:
                raise Broken("I15 told that it holds a lease that it does not hold")
            origin = "step" if asked.kind == "step" else "seen"
            return holding._replace(view=reply.view, origin=origin, tries=0)
        if reply.word not in ("CONTROL", "INPUT", "REWOUND", "BAD_PARK"):
            return None
        return holding._replace(
            view=reply.view,
            origin="seen" if reply.word == "REWOUND" else holding.origin,
            tries=holding.tries + 1,
            barred=reply.word == "BAD_PARK",
        )

    def _goes_on(self, world: World, index: int, holding: Holding) -> Iterator[World]:
        """The holder decides at once; it may be told to drain instead."""
        boot = world.workers[index].boot
        decided = Worker(boot, holding, next_request(holding, self.scenario))
        ran = world
        if runs_tool(holding):
            ran = _count_tool(world, holding.session, holding.view.turn)
        yield ran.with_worker(index, decided)
        if world.may("drain"):
            gives_up = Worker(boot, holding, GiveUp(holding.session, holding.lease))
            yield world.with_worker(index, gives_up).spend("drain")

    # Sessions

    def _upkeep(self, world: World, index: int, session: Session) -> Iterator[Step]:
        after, reply = reap(session, self.scenario.rules)
        if after != session:
            if session.lease is not None and not session.expired:
                raise Broken("I2 a live lease was reaped")
            self.seen("reap", reply.word)
            yield Step(f"session {index} is reaped", world.with_session(index, after))
        if world.may("defer") and session.status == "ready":
            after, reply = defer(session, self.scenario.rules)
            self.seen("defer", reply.word)
            put_off = world.with_session(index, after).spend("defer")
            yield Step(f"session {index} is put off", put_off, fair=False)

    def _time(self, world: World, index: int, session: Session) -> Iterator[Step]:
        if session.lease is not None and not session.expired:
            expired = world.with_session(index, session._replace(expired=True))
            if unknown_to_holder(world, session.lease):
                yield Step(f"the lease of session {index} ends, nobody renews it", expired)
            elif world.may("expire"):
                name = f"the lease of session {index} ends, its holder is paused"
                yield Step(name, expired.spend("expire"), fair=False)
        if any(wait.deadline == AHEAD and not wait.answer for wait in session.waits):
            waits = tuple(
                wait._replace(deadline=PASSED) if wait.deadline == AHEAD else wait
                for wait in session.waits
            )
            due = world.with_session(index, session._replace(waits=waits))
            yield Step(f"the deadline of session {index} passes", due)
        if any(not one.due for one in session.inputs):
            inputs = tuple(one._replace(due=True) for one in session.inputs)
            due = world.with_session(index, session._replace(inputs=inputs))
            yield Step(f"the scheduled message of session {index} is due", due)
        if session.put_off:
            offered = world.with_session(index, session._replace(put_off=False))
            yield Step(f"session {index} was put off long enough", offered)

    def _operator(self, world: World, index: int, session: Session) -> Iterator[Step]:
        yield from self._stops(world, index, session)
        if session.status == "quarantined" and world.may("redrive"):
            for wish in _redrives(index, session):
                after, reply = self._execute(world, wish, current=True)
                after = after.spend("redrive")
                name = f"an operator: {name_of(wish)} of session {index} -> {reply.word}"
                yield Step(name, after)
                if world.may("resend"):
                    left = after.with_copy("operator", index, wish).spend("resend")
                    yield Step(f"{name}, a copy stays on its way", left, fair=False)
        if session.status == "quarantined" and world.may("delete"):
            asked = Delete(index, -1, session.life)
            after, _ = self._execute(world, asked, current=True)
            yield Step(f"an operator deletes session {index}", after.spend("delete"))
        if session.status == "deleted" and world.may("purge") and _window_passed(world, session):
            after_purge, reply = purge(session, self.scenario.rules)
            self.seen("purge", reply.word)
            if after_purge.fence < session.fence:
                raise Broken("I2 the fence went back")
            purged = world.with_session(index, after_purge).spend("purge")
            yield Step(f"session {index} is purged", purged, fair=False)

    def _stops(self, world: World, index: int, session: Session) -> Iterator[Step]:
        if world.may("stop") and session.status in ("idle", "ready", "held", "parked"):
            asked = Stop(index, session.quarantines + 1)
            after, _ = self._execute(world, asked, current=True)
            name = f"an operator stops session {index}"
            yield Step(name, after.spend("stop"), fair=False)
            if world.may("resend"):
                left = after.spend("stop").with_copy("operator", index, asked).spend("resend")
                yield Step(f"{name}, a copy stays on its way", left, fair=False)

    def _replica(self, world: World) -> Iterator[Step]:
        if world.replica is None or world.replica == world.sessions:
            return
        yield Step("the replica catches up", world._replace(replica=world.sessions))
        if world.may("fail_over"):
            lost = world._replace(sessions=world.replica).spend("fail_over")
            yield Step("failover to the replica", lost, fair=False)


def _redrives(index: int, session: Session) -> Iterator[Redrive]:
    """With all it has, without one input, without everything."""
    number = session.quarantines
    yield Redrive(index, number)
    for one in session.inputs:
        if one.kind != "answer":
            yield Redrive(index, number, skip=one.n)
    yield Redrive(index, number, everything=True)


def _window_passed(world: World, session: Session) -> bool:
    """No copy of an acknowledged submission can still come."""
    if any(sender == "producer" for sender, _, _ in world.network):
        return False
    return all(word or receipt_of(session, index) is None for index, word in enumerate(world.words))


def _count_tool(world: World, session: int, turn: int) -> World:
    runs = {(one, of): times for one, of, times in world.tool_runs}
    runs[session, turn] = min(2, runs.get((session, turn), 0) + 1)
    flat = tuple(sorted((one, of, times) for (one, of), times in runs.items()))
    return world._replace(tool_runs=flat)
