"""A message with its options, checked: what is submitted now, or whenever a schedule is due."""

from __future__ import annotations

from changeover_shared._events import Message
from changeover_shared._items import Wire
from changeover_shared._ops import MessageOp, digest, encode_op
from changeover_shared._policies import (
    AGENTS_DEFAULT,
    AnyPolicy,
    read_policy,
    wish_of,
    write_policy,
)
from changeover_shared._settings import Durability
from changeover_shared._store.keys import route_of
from changeover_shared._store.records import Create, Submit


class CheckedMessage(Wire):
    """Everything of a submission but its session, its id and its time."""

    op: MessageOp
    agent: str
    """Who answers, and `queue` where, if the session is created by it."""
    queue: str
    tenant: str = ""
    context: str = "{}"
    """JSON."""
    policy: str = ""
    """As `write_policy` writes it; '' for the agent's."""
    priority: int = 0
    durability: Durability | None = None

    def submit(
        self, session_id: str, submission_id: str, *, due_ms: int = 0, delay_ms: int = 0
    ) -> Submit:
        """What the store takes."""
        op = self.op
        wish = wish_of(read_policy(self.policy)) if self.policy else AGENTS_DEFAULT
        return Submit(
            session_id=session_id,
            submission_id=submission_id,
            digest=digest(op),
            cls="turn",
            body=encode_op(op),
            create=Create(
                route=route_of(self.queue),
                agent=self.agent,
                tenant=self.tenant,
                context=self.context,
            ),
            policy=wish.policy,
            key=wish.key,
            quiet_ms=wish.quiet_ms,
            max_wait_ms=wish.max_wait_ms,
            due_ms=due_ms,
            delay_ms=delay_ms,
            priority=self.priority,
            event=Message(
                text=op.text,
                attachments=op.attachments,
                author=op.author,
                submission_id=submission_id,
            ),
            durability=self.durability,
        )


def written(policy: AnyPolicy | None) -> str:
    """A submission's policy as it is kept; '' for the agent's. Raises `Invalid`."""
    return "" if policy is None else write_policy(policy)
