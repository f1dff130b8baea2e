"""What the client refuses before any I/O: none of these tests has a server to talk to."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from changeover import Attachment, Client, Message, Operator, Submission
from changeover._submission import message_submit, op_submit
from changeover_shared._errors import Invalid, TooLarge
from changeover_shared._identifiers import id_time_ms
from changeover_shared._ops import InterruptOp, MessageOp, SetModelOp, decode_op
from changeover_shared._settings import Settings

SETTINGS = Settings(agent="assistant", tenant="acme")
MIB = 1024 * 1024
NOWHERE = "redis://127.0.0.1:1/0"


def refused(**fields: Any) -> Invalid:
    fields.setdefault("session", "s:1")
    fields.setdefault("message", "hello")
    with pytest.raises(Invalid) as caught:
        message_submit(Submission(**fields), SETTINGS)
    assert "nothing was sent" in str(caught.value)
    return caught.value


def test_a_message_of_exactly_the_limit_is_accepted_and_one_byte_more_is_not() -> None:
    text = "é" * (MIB // 2)
    assert decode_op(message_submit(Submission("s:1", text), SETTINGS).body) == MessageOp(text=text)
    with pytest.raises(TooLarge) as caught:
        message_submit(Submission("s:1", text + "x"), SETTINGS)
    assert (caught.value.size, caught.value.limit) == (MIB + 1, MIB)
    assert "message is 1048577 bytes of UTF-8, the limit is 1048576" in str(caught.value)


@pytest.mark.parametrize(
    "session", ["", "a b", "a|b", "{a}", "a/b", "ü", "x" * 257, "a\n", None, 7]
)
def test_a_session_that_is_no_identifier_is_refused(session: Any) -> None:
    assert refused(session=session).field == "session"


@pytest.mark.parametrize("id", ["", "a b", "x" * 257, "a#b", 5, b"m:1", ["m:1"]])
def test_an_id_that_is_no_identifier_is_refused(id: Any) -> None:
    assert refused(id=id).field == "id"


@pytest.mark.parametrize("text", ["", "   ", "\n\t\u2003"])
def test_a_blank_message_is_refused_unless_something_is_attached(text: str) -> None:
    assert refused(message=text).field == "message"
    attached = Message(text, attachments=(Attachment(url="s3://bucket/1"),))
    submit = message_submit(Submission("s:1", attached), SETTINGS)
    assert json.loads(submit.body)["attachments"][0]["url"] == "s3://bucket/1"


def test_text_that_is_no_unicode_is_refused() -> None:
    assert refused(message="half a pair \ud83d").field == "message"


def test_what_is_neither_text_nor_a_message_is_refused() -> None:
    assert refused(message=b"hello").field == "message"
    assert refused(message=Message(None)).field == "message"  # type: ignore[arg-type]


def test_more_than_sixteen_attachments_are_refused() -> None:
    one = Attachment(url="s3://bucket/1")
    assert message_submit(Submission("s:1", Message("x", attachments=(one,) * 16)), SETTINGS)
    assert refused(message=Message("x", attachments=(one,) * 17)).field == "attachments"


@pytest.mark.parametrize("attachments", [None, "s3://bucket/1", ("s3://bucket/1",), {"url": "x"}])
def test_attachments_of_another_type_are_refused(attachments: Any) -> None:
    assert refused(message=Message("x", attachments=attachments)).field == "attachments"


@pytest.mark.parametrize("author", [None, 5, "", " "])
def test_an_author_that_is_no_name_is_refused(author: Any) -> None:
    assert refused(message=Message("x", author=author)).field == "author"


@pytest.mark.parametrize("item", [None, 1, "s", ("s:1", "x"), {"session": "s:1"}])
def test_what_is_no_submission_is_refused(item: Any) -> None:
    with pytest.raises(Invalid, match="is no Submission; nothing was sent"):
        message_submit(item, SETTINGS)


@pytest.mark.parametrize("priority", [-3, 3, 1.0, True, "1", None])
def test_a_priority_out_of_range_is_refused(priority: Any) -> None:
    assert refused(priority=priority).field == "priority"


def test_priorities_from_minus_two_to_two_are_accepted() -> None:
    for priority in range(-2, 3):
        assert (
            message_submit(Submission("s:1", "x", priority=priority), SETTINGS).priority == priority
        )


@pytest.mark.parametrize("context", [{"chat": 1}, {1: "chat"}, ["chat"], {"chat": None}])
def test_context_that_is_not_text_to_text_is_refused(context: Any) -> None:
    assert refused(context=context).field == "context"


@pytest.mark.parametrize(
    "metadata",
    [
        {"at": object()},
        {1: "x"},
        {"x": float("nan")},
        {"x": "\ud83d"},
        {"x": {2: 3}},
        5,
        "text",
        [("a", "b")],
    ],
)
def test_metadata_that_json_cannot_hold_is_refused(metadata: Any) -> None:
    assert refused(metadata=metadata).field == "metadata"


def test_metadata_over_its_limit_is_too_large() -> None:
    with pytest.raises(TooLarge):
        message_submit(Submission("s:1", "x", metadata={"x": "y" * 70_000}), SETTINGS)


@pytest.mark.parametrize("field", ["agent", "queue", "model", "reply_to"])
@pytest.mark.parametrize("value", ["a b", "", 0, 5, ["a"]])
def test_a_name_with_other_characters_or_of_another_type_is_refused(field: str, value: Any) -> None:
    assert refused(**{field: value}).field == field


@pytest.mark.parametrize("field", ["agent", "queue", "status"])
@pytest.mark.parametrize("value", ["é b", "", 5, []])
async def test_a_filter_that_no_session_can_fit_is_refused(field: str, value: Any) -> None:
    wanted: Any = {field: value}
    with pytest.raises(Invalid) as caught:
        await Client(NOWHERE).sessions(**wanted)
    assert caught.value.field == field
    if field == "status":
        assert "none of idle, ready, running, parked, quarantined, closed, deleted" in str(
            caught.value
        )


@pytest.mark.parametrize("reason", [None, 5, "half a pair \ud83d"])
async def test_a_reason_that_is_no_text_is_refused(reason: Any) -> None:
    client = Client(NOWHERE)
    for refusing in (client.interrupt, client.close_session):
        with pytest.raises(Invalid) as caught:
            await refusing("s:1", reason=reason)
        assert caught.value.field == "reason"


async def test_a_reason_over_its_limit_is_too_large() -> None:
    client = Client(NOWHERE)
    for refusing in (client.interrupt, client.close_session):
        with pytest.raises(TooLarge):
            await refusing("s:1", reason="x" * 1025)


@pytest.mark.parametrize("said", [None, 5, "half a pair \ud83d", "x" * 1025])
@pytest.mark.parametrize("field", ["reason", "by"])
async def test_why_and_by_whom_something_is_stopped_is_text_of_some_length(
    field: str, said: Any
) -> None:
    """The journal and the list of queues show it. A pause with such a reason was a bug."""
    operator = Operator(NOWHERE)
    given: Any = {"reason": "why", "by": "ann", field: said}
    for refusing in (operator.pause, operator.quarantine):
        with pytest.raises((Invalid, TooLarge)) as caught:
            await refusing("assistant", **given)
        assert field in str(caught.value)
    if field == "by":
        with pytest.raises((Invalid, TooLarge)):
            operator.redrive(["web:1"], by=said)


@pytest.mark.parametrize("sessions", ["web:1", 5, b"web:1"])
def test_what_is_not_several_ids_is_let_go_of_nowhere(sessions: Any) -> None:
    with pytest.raises(Invalid):
        Operator(NOWHERE).redrive(sessions)


def test_absent_metadata_keeps_and_empty_metadata_clears() -> None:
    keeps = json.loads(message_submit(Submission("s:1", "x"), SETTINGS).body)
    clears = json.loads(message_submit(Submission("s:1", "x", metadata={}), SETTINGS).body)
    assert (keeps["metadata"], clears["metadata"]) == (None, {})


def test_a_session_is_created_with_the_agent_whose_name_is_its_queue() -> None:
    plain = message_submit(Submission("s:1", "x"), SETTINGS).create
    named = message_submit(
        Submission("s:1", "x", agent="support", context={"chat": "7"}), SETTINGS
    ).create
    queued = message_submit(Submission("s:1", "x", agent="support", queue="gpu"), SETTINGS).create
    assert (plain.agent, plain.route, plain.tenant, plain.context) == (
        "assistant",
        "assistant@1",
        "acme",
        "{}",
    )
    assert (named.agent, named.route, named.context) == ("support", "support@1", '{"chat":"7"}')
    assert (queued.agent, queued.route) == ("support", "gpu@1")


def test_a_submission_has_its_id_before_anything_is_sent() -> None:
    first, second = Submission("s:1", "x"), Submission("s:1", "x")
    assert id_time_ms(first.id) is not None
    assert first.id != second.id
    assert Submission("s:1", "x", id="telegram:7").id == "telegram:7"


def test_the_same_content_has_the_same_digest_and_other_content_another() -> None:
    def digest(message: str, **options: Any) -> str:
        return message_submit(Submission("s:1", message, id="m:1", **options), SETTINGS).digest

    assert digest("hello") == digest("hello") == digest("hello", priority=2)
    assert len({digest("hello"), digest("hello!"), digest("hello", model="fast")}) == 3


def test_other_ops_never_create_a_session() -> None:
    interrupt = op_submit("s:1", InterruptOp(), submission_id=None, target="t_4")
    change = op_submit("s:1", SetModelOp(model="fast"), submission_id="m:2")
    assert (interrupt.cls, interrupt.target, interrupt.may_create) == ("ctl", "t_4", False)
    assert (change.cls, change.submission_id, change.may_create) == ("turn", "m:2", False)


async def test_every_method_checks_its_arguments_before_it_connects() -> None:
    client = Client(NOWHERE)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: client.submit("a b", "x"),
        lambda: client.run("s:1", "x", timeout="soon"),
        lambda: client.wait("s:1", "a b"),
        lambda: client.session(""),
        lambda: client.sessions(limit=0),
        lambda: client.sessions(cursor="yesterday"),
        lambda: client.sessions(cursor=5),  # type: ignore[arg-type]
        lambda: client.events("s:1", before="x"),
        lambda: client.transcript("s:1", limit=1001),
        lambda: client.turns("s:1", before=-1),
        lambda: client.view("a|b"),
        lambda: client.interrupt("s:1", turn="t 1"),
        lambda: client.cancel("s:1", ""),
        lambda: client.turn_events("s:1", before="x"),
        lambda: client.set_model("s:1", ""),
        lambda: client.close_session("a b"),
    ]
    for call in calls:
        with pytest.raises(Invalid):
            await call()


def test_iterators_check_their_arguments_when_they_are_made() -> None:
    client = Client(NOWHERE)
    for make in (
        lambda: client.stream("a b", "x"),
        lambda: client.follow("s:1", after=-1),
        lambda: client.follow("s:1", after="yesterday"),  # type: ignore[arg-type]
        lambda: client.follow("s:1", until=""),
        lambda: client.submit_many([], in_flight=0),
        lambda: client.wait_many([], timeout="soon"),
    ):
        with pytest.raises(Invalid):
            make()


async def test_a_closed_client_refuses_and_may_be_closed_again() -> None:
    client = Client(NOWHERE)
    await client.aclose()
    await client.aclose()
    with pytest.raises(Invalid, match="it is closed"):
        await client.submit("s:1", "x")


def test_a_tenant_that_is_no_name_is_refused() -> None:
    with pytest.raises(Invalid):
        Client(NOWHERE, tenant="a b")
