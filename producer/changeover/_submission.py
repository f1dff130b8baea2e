"""What a caller wants to say, checked before any I/O and made into what the store takes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict, get_args

from pydantic import TypeAdapter, ValidationError

from changeover_shared._budget import Budget, checked_budget
from changeover_shared._errors import Invalid, TooLarge
from changeover_shared._identifiers import identifier, name, new_submission_id
from changeover_shared._items import Attachment, Json
from changeover_shared._messages import CheckedMessage, written
from changeover_shared._ops import MessageOp, Op, class_of, digest, encode_op
from changeover_shared._policies import AnyPolicy, Debounce
from changeover_shared._settings import Durability, Settings
from changeover_shared._store.records import Create, Submit
from changeover_shared._tracing import here
from changeover_shared._units import Duration, milliseconds

MAX_ATTACHMENTS = 16
MAX_ATTACHED_BYTES = 16 * 1024
MAX_CONTEXT_BYTES = 16 * 1024
MAX_METADATA_BYTES = 16 * 1024
MAX_AUTHOR_BYTES = 256
MAX_REASON_BYTES = 1024
PRIORITIES = range(-2, 3)
EPOCH = datetime.fromtimestamp(0, UTC)
NOW_OR_NEVER = ("interrupt", "rollback")
"""Policies that stop what runs, and so mean nothing at another time."""

_METADATA: TypeAdapter[dict[str, Json]] = TypeAdapter(dict[str, Json])


@dataclass(frozen=True)
class Message:
    """Text for a session, with files by reference and the name of who says it."""

    text: str
    attachments: tuple[Attachment, ...] = field(default=(), kw_only=True)
    author: str = field(default="user", kw_only=True)


@dataclass(frozen=True)
class Submission:
    """One message for one session. Its id exists from here on, so sending it again is safe."""

    session: str
    message: str | Message
    id: str = field(default_factory=new_submission_id, kw_only=True)
    """What duplicates are told by: the caller's own id of the message, or a new UUIDv7."""
    agent: str | None = field(default=None, kw_only=True)
    """Who answers; read when the session is created."""
    queue: str | None = field(default=None, kw_only=True)
    """Where the session waits, by default its agent's name; read when it is created."""
    policy: AnyPolicy | None = field(default=None, kw_only=True)
    """What becomes of it while a turn runs or others wait; None for the agent's default."""
    priority: int = field(default=0, kw_only=True)
    """-2 to 2: a bounded head start, not a class."""
    at: datetime | None = field(default=None, kw_only=True)
    """When it may run, with a time zone; a time that has passed is now. Redis's clock counts."""
    delay: Duration | None = field(default=None, kw_only=True)
    """How long after its acceptance it may run."""
    reply_to: str | None = field(default=None, kw_only=True)
    """The channel that the answer goes to: the outcome of its turn names it, for whoever
    delivers. It is part of the content that the id stands for."""
    context: Mapping[str, str] | None = field(default=None, kw_only=True)
    """What the worker sees of the session; fixed when it is created."""
    metadata: Mapping[str, Json] | None = field(default=None, kw_only=True)
    """None keeps the session's metadata, `{}` clears it."""
    model: str | None = field(default=None, kw_only=True)
    """Use this model of the app from this message on."""
    budget: Budget | None = field(default=None, kw_only=True)
    """What its turn may use; the agent's limits hold as well."""
    durability: Durability | None = field(default=None, kw_only=True)
    """What it waits for before it counts as accepted; None for CHANGEOVER_DURABILITY."""


class MessageOptions(TypedDict, total=False):
    """The options of a message, whenever it is sent."""

    agent: str | None
    queue: str | None
    policy: AnyPolicy | None
    priority: int
    reply_to: str | None
    context: Mapping[str, str] | None
    metadata: Mapping[str, Json] | None
    model: str | None
    budget: Budget | None
    durability: Durability | None


class Options(MessageOptions, total=False):
    """The options of a submission, as `submit`, `run` and `stream` take them."""

    id: str | None
    at: datetime | None
    delay: Duration | None


def submission(session: str, message: str | Message, options: Options) -> Submission:
    """Make a submission of a call's arguments; without an id it gets a new one."""
    given: dict[str, Any] = {key: value for key, value in options.items() if key != "id"}
    chosen = options.get("id")
    return Submission(
        session, message, id=new_submission_id() if chosen is None else chosen, **given
    )


def message_submit(wanted: Submission, settings: Settings) -> Submit:
    """Build what the store takes; raises `Invalid` or `TooLarge` before anything is sent."""
    if not isinstance(wanted, Submission):
        raise Invalid(field="item", reason=f"{wanted!r:.80} is no Submission")
    session_id = identifier(wanted.session, field="session")
    submission_id = identifier(wanted.id, field="id")
    message = checked_message(wanted, settings)
    if trace := here():
        message = message.model_copy(update={"op": message.op.model_copy(update={"trace": trace})})
    due_ms, delay_ms = _time(wanted)
    return message.submit(session_id, submission_id, due_ms=due_ms, delay_ms=delay_ms)


def checked_message(wanted: Submission, settings: Settings) -> CheckedMessage:
    """What is said and how, whenever that is; raises `Invalid` or `TooLarge`."""
    message = _checked_message(wanted.message, settings.max_message)
    agent = name(settings.agent if wanted.agent is None else wanted.agent, field="agent")
    return CheckedMessage(
        op=MessageOp(
            text=message.text,
            attachments=tuple(message.attachments),
            author=message.author,
            model=None if wanted.model is None else identifier(wanted.model, field="model"),
            metadata=_metadata(wanted.metadata),
            budget=checked_budget(wanted.budget, "budget"),
            reply_to=None if wanted.reply_to is None else name(wanted.reply_to, field="reply_to"),
        ),
        agent=agent,
        queue=agent if wanted.queue is None else name(wanted.queue, field="queue"),
        tenant=settings.tenant,
        context=_context(wanted.context),
        policy=written(wanted.policy),
        priority=_priority(wanted.priority),
        durability=_durability(wanted.durability),
    )


def op_submit(session: str, op: Op, *, submission_id: str | None, target: str = "") -> Submit:
    """Build the submission of an op that is no message: it never creates a session."""
    return Submit(
        session_id=identifier(session, field="session"),
        submission_id=new_submission_id()
        if submission_id is None
        else identifier(submission_id, field="id"),
        digest=digest(op),
        cls="ctl" if class_of(op) == "ctl" else "turn",
        body=encode_op(op),
        create=Create(route="", agent=""),
        target=target,
        may_create=False,
    )


def checked_reason(reason: str, *, field: str = "reason") -> str:
    """Return what may be said of why something ends or stops, or by whom; raises `Invalid` or
    `TooLarge`."""
    if not isinstance(reason, str):
        raise Invalid(field=field, reason=f"{reason!r:.80} is no text")
    _bounded(field, reason, MAX_REASON_BYTES, remedy="say it in fewer words")
    return reason


def _checked_message(given: str | Message, limit: int) -> Message:
    message = Message(given) if isinstance(given, str) else given
    if not isinstance(message, Message):
        raise Invalid(
            field="message", reason=f"{type(message).__name__} is neither text nor Message"
        )
    if not isinstance(message.text, str):
        raise Invalid(field="message", reason=f"its text is a {type(message.text).__name__}")
    _bounded("message", message.text, limit, remedy="send it as an attachment")
    _check_attachments(message.attachments)
    if not message.text.strip() and not message.attachments:
        raise Invalid(field="message", reason="it is blank and has no attachment")
    if not isinstance(message.author, str):
        raise Invalid(field="author", reason=f"{message.author!r:.80} is no text")
    if not message.author.strip():
        raise Invalid(field="author", reason="it is blank")
    _bounded("author", message.author, MAX_AUTHOR_BYTES, remedy="use a shorter name")
    return message


def _check_attachments(given: Sequence[Attachment]) -> None:
    if not isinstance(given, tuple | list) or not all(isinstance(a, Attachment) for a in given):
        raise Invalid(field="attachments", reason=f"{given!r:.80} is no tuple of Attachment")
    if len(given) > MAX_ATTACHMENTS:
        raise Invalid(field="attachments", reason=f"{len(given)} are more than {MAX_ATTACHMENTS}")
    attached = "".join(a.model_dump_json() for a in given)
    _bounded("attachments", attached, MAX_ATTACHED_BYTES, remedy="attach by shorter references")


def _bounded(what: str, text: str, limit: int, *, remedy: str = "send less") -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise Invalid(field=what, reason=f"it is no valid Unicode: {error.reason}") from error
    if size > limit:
        raise TooLarge(what=what, size=size, limit=limit, remedy=remedy)


def _priority(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in PRIORITIES:
        raise Invalid(field="priority", reason=f"{value!r:.80} is no whole number from -2 to 2")
    return value


def _time(wanted: Submission) -> tuple[int, int]:
    """When it may run, and how long after its acceptance, in milliseconds."""
    at, delay = wanted.at, wanted.delay
    if at is None and delay is None:
        return 0, 0
    field = "at" if delay is None else "delay"
    if at is not None and delay is not None:
        raise Invalid(field=field, reason="a message has one time: give at, or delay")
    if isinstance(wanted.policy, Debounce) or wanted.policy in NOW_OR_NEVER:
        reason = f"{_policy_word(wanted.policy)} acts on what runs when the message is accepted"
        raise Invalid(field=field, reason=reason)
    if delay is not None:
        return 0, milliseconds(delay, field=field)
    if not isinstance(at, datetime):
        raise Invalid(field=field, reason=f"{at!r:.80} is no datetime")
    if at.utcoffset() is None:
        raise Invalid(field=field, reason=f"{at.isoformat()} has no time zone")
    return max(0, (at - EPOCH) // timedelta(milliseconds=1)), 0


def _policy_word(policy: AnyPolicy | None) -> str:
    return "a debounce" if isinstance(policy, Debounce) else f"policy {policy}"


def _durability(value: Durability | None) -> Durability | None:
    if value is not None and value not in get_args(Durability):
        known = ", ".join(get_args(Durability))
        raise Invalid(field="durability", reason=f"{value!r:.80} is not one of {known}")
    return value


def _context(value: Mapping[str, str] | None) -> str:
    if value is None:
        return "{}"
    if not isinstance(value, Mapping) or not all(
        isinstance(part, str) for pair in value.items() for part in pair
    ):
        raise Invalid(field="context", reason="it must map text to text")
    written = json.dumps(dict(value), ensure_ascii=False, separators=(",", ":"))
    _bounded("context", written, MAX_CONTEXT_BYTES)
    return written


def _metadata(value: Mapping[str, Json] | None) -> dict[str, Json] | None:
    if value is None:
        return None
    try:
        if not isinstance(value, Mapping):
            raise TypeError(f"{type(value).__name__} is no mapping")
        checked = _METADATA.validate_python(dict(value), strict=True)
        written = json.dumps(checked, ensure_ascii=False, allow_nan=False)
    except (ValidationError, TypeError, ValueError) as error:
        raise Invalid(field="metadata", reason="it must map text to what JSON can hold") from error
    _bounded("metadata", written, MAX_METADATA_BYTES)
    return checked
