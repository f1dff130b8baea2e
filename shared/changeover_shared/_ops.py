"""Ops: what producers ask a session to do, as typed models with a `type` on the wire."""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from changeover_shared._budget import Budget
from changeover_shared._items import Attachment, Json, Wire
from changeover_shared._words import SubmissionClass


class MessageOp(Wire):
    """Say something to the session: the one op that calls a model."""

    type: Literal["message"] = "message"
    text: str
    attachments: tuple[Attachment, ...] = ()
    author: str = "user"
    model: str | None = None
    """Use this model of the app from this turn on."""
    metadata: dict[str, Json] | None = None
    """Absent keeps the session's metadata, `{}` clears it."""
    budget: Budget | None = None
    """What its turn may use, if that is less than the agent allows."""
    reply_to: str | None = None
    """The channel that the answer goes to."""
    trace: str = ""
    """The span that sent it, as a W3C `traceparent`. Not part of the content: who sends it again
    does so in another span."""


class SetModelOp(Wire):
    """Use another model of the app from the next turn on."""

    type: Literal["set_model"] = "set_model"
    model: str


class CloseOp(Wire):
    """End the session: what waits is cancelled, nothing is accepted afterwards."""

    type: Literal["close"] = "close"
    reason: str = ""


class CompactOp(Wire):
    """Replace the older part of what the model is shown by a summary."""

    type: Literal["compact"] = "compact"


class RollbackOp(Wire):
    """Take a finished turn and all later ones out of what the model is shown; the transcript
    keeps them."""

    type: Literal["rollback"] = "rollback"
    to: str
    """The turn."""


class ResumeSessionOp(Wire):
    """Ask whoever follows this session to go on with another one, whose context is told."""

    type: Literal["resume_session"] = "resume_session"
    target: str


class InterruptOp(Wire):
    """Stop the running turn."""

    type: Literal["interrupt"] = "interrupt"
    reason: str = ""


TurnOp = MessageOp | SetModelOp | CloseOp | CompactOp | RollbackOp | ResumeSessionOp
"""Ops that wait in the inbox and are taken in order."""

Op = TurnOp | InterruptOp

_OP: TypeAdapter[Op] = TypeAdapter(Annotated[Op, Field(discriminator="type")])


def decode_op(body: bytes | str) -> Op:
    """Read an op; raises `pydantic.ValidationError` for one that this release does not know."""
    return _OP.validate_json(body)


def encode_op(op: Op) -> str:
    """Write an op as JSON; its `type` always stands in it."""
    untraced = {"trace"} if isinstance(op, MessageOp) and not op.trace else None
    return op.model_dump_json(exclude=untraced)


def class_of(op: Op) -> SubmissionClass:
    """How the submit script treats the op."""
    return SubmissionClass.CTL if isinstance(op, InterruptOp) else SubmissionClass.TURN


def digest(op: Op) -> str:
    """16 hex digits over the op's content: the same id with another digest is `IdReused`.

    Defaults are left out, so that a release with one more optional field agrees with this one.
    """
    content = f"{op.type} {op.model_dump_json(exclude_defaults=True, exclude={'trace'})}"
    return hashlib.sha256(content.encode()).hexdigest()[:16]
