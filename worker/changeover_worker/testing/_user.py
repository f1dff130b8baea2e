"""What a scenario is given: the side of the people who use a session."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from changeover_shared._errors import Invalid
from changeover_shared._events import Event, Message, SessionQuarantined, ending_of
from changeover_shared._ops import InterruptOp, MessageOp, Op, class_of, digest, encode_op
from changeover_shared._policies import ENQUEUE, AnyPolicy, Wish, wish_of
from changeover_shared._results import TranscriptItem
from changeover_shared._store.keys import route_of
from changeover_shared._store.records import CancelAnswer, Create, NoTurn, Submit
from changeover_shared._words import Ending, SubmissionClass
from changeover_worker.testing._world import World


class AtWork(Protocol):
    """The worker that has the sessions."""

    def renew(self) -> None:
        """Renew its leases now, which tells it of interrupts."""

    def drain(self) -> None:
        """Hand its sessions off at their next step boundaries."""


class User:
    """Sends submissions and follows the sessions that they make.

    While it does something no worker makes a call, so that a scenario goes the same way each
    time; it should wait with `until` and `ended`, never by sleeping.
    """

    def __init__(
        self,
        world: World,
        agent: str,
        at_work: Callable[[], AtWork],
        policies: Mapping[str, AnyPolicy],
    ) -> None:
        self._world = world
        self._policies = policies
        self._agent = agent
        self._at_work = at_work
        self._count = 0

    async def submit(
        self,
        said: str | Op,
        *,
        session: str = "s",
        id: str = "",
        agent: str = "",
        policy: AnyPolicy | None = None,
        reply_to: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> str:
        """Send a message or another op; its id, `m1`, `m2` ... without one.

        Without a policy a message has its agent's. `reply_to` is the channel of a text; `context`
        is the session's, if this creates it. Raises what a producer's `submit` raises.
        """
        op = MessageOp(text=said, reply_to=reply_to) if isinstance(said, str) else said
        if isinstance(op, InterruptOp):
            raise Invalid(field="said", reason="interrupt has a method of its own")
        self._count += not id
        id = id or f"m{self._count}"
        event = Message(text=op.text, author=op.author) if isinstance(op, MessageOp) else None
        agent = agent or self._agent
        wish = wish_of(policy or self._policies.get(agent, "enqueue")) if event else ENQUEUE
        await self._send(op, session, id, agent, event, wish, context)
        return id

    async def interrupt(
        self, *, session: str = "s", id: str = "", reason: str = "", heard: bool = True
    ) -> bool:
        """Stop the running turn; False when none runs.

        With `heard=False` nobody tells the worker: it finds out with what it writes next, which
        may be the end of its turn.
        """
        self._count += not id
        accepted = await self._send(
            InterruptOp(reason=reason), session, id or f"i{self._count}", self._agent
        )
        if heard:
            self._at_work().renew()
        return accepted

    async def cancel(self, id: str, *, session: str = "s") -> CancelAnswer:
        """Take a waiting submission back."""
        answer = await self._world.store.cancel(session, id)
        await self._world.look()
        return answer

    def drain(self) -> None:
        """Have the worker hand off at the next step boundary; another one goes on."""
        self._at_work().drain()

    async def until(self, wanted: Callable[[Event], bool], *, session: str = "s") -> Event:
        """The first event of the session's journal that is wanted; it may have come before."""
        return await self._world.until(session, wanted)

    async def ended(self, id: str, *, session: str = "s") -> Ending:
        """How a submission ends, once it has.

        Raises `AssertionError` when its session is quarantined before: then it never ends.
        """
        stopped = await self.until(
            lambda event: ending_of(event, id) is not None or isinstance(event, SessionQuarantined),
            session=session,
        )
        for event in self.events(session=session):
            if (ending := ending_of(event, id)) is not None:
                return ending
        assert isinstance(stopped, SessionQuarantined)
        why = stopped.error or f"{stopped.attempts} grants in a row without a committed step"
        raise AssertionError(f"session {session} is quarantined before {id} has ended: {why}")

    def events(self, *, session: str = "s") -> tuple[Event, ...]:
        """What a follower has seen of the session by now."""
        return tuple(self._world.follow(session).seen)

    async def transcript(self, *, session: str = "s") -> Sequence[TranscriptItem]:
        """The session's transcript, oldest first."""
        found = await self._world.store.transcript_back(session, before=None, limit=10_000)
        return sorted(found, key=lambda entry: entry.n)

    async def _send(
        self,
        op: Op,
        session: str,
        id: str,
        agent: str,
        event: Event | None = None,
        wish: Wish = ENQUEUE,
        context: Mapping[str, str] | None = None,
    ) -> bool:
        self._world.follow(session)
        answer = await self._world.store.submit(
            Submit(
                session_id=session,
                submission_id=id,
                digest=digest(op),
                cls=class_of(op).value,
                body=encode_op(op),
                create=Create(
                    route=route_of(agent), agent=agent, context=json.dumps(dict(context or {}))
                ),
                policy=wish.policy,
                key=wish.key,
                quiet_ms=wish.quiet_ms,
                max_wait_ms=wish.max_wait_ms,
                event=event,
            )
        )
        accepted = not isinstance(answer, NoTurn)
        if accepted:
            control = class_of(op) is SubmissionClass.CTL
            self._world.accepted.append((session, id, control))
        await self._world.look()
        return accepted
