"""Errors: the tree as its docstring draws it, and texts that say what to do."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from changeover_shared import _errors
from changeover_shared._errors import (
    AlreadyDecided,
    AppFailed,
    AppNotFound,
    BindFailed,
    Busy,
    ChangeoverError,
    Closed,
    Deleted,
    ExtraMissing,
    FormatTooNew,
    IdExpired,
    IdReused,
    Invalid,
    KeyMissing,
    LeaseError,
    LeaseExpired,
    LeaseGone,
    LeaseLost,
    NotCompleted,
    NotDurable,
    NotWaiting,
    OutcomeUnknown,
    PartitionMismatch,
    PayloadDamaged,
    PayloadError,
    PayloadKeyMissing,
    RequestError,
    ServerUnfit,
    SessionDeleted,
    SessionHeld,
    SetupError,
    StepFailed,
    StopTurn,
    StoreUnavailable,
    TooLarge,
    ToolError,
    TooManySchedules,
    UnknownSession,
    UnknownSubmission,
    UnknownWorker,
    WaitTimeout,
)
from changeover_shared._events import Failure
from changeover_shared._results import Outcome, Receipt
from changeover_shared._words import Ending

DRAWN = re.compile(r"^( *)[*+>-] ((?:[A-Z]\w+(?:, )?)+)", re.M)


def drawn_tree() -> dict[str, str]:
    """Each class of the docstring with the one it is drawn under."""
    found: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    continued = re.sub(r",\n +", ", ", _errors.__doc__ or "")
    for indent, names in DRAWN.findall(continued):
        depth = len(indent)
        while above and above[-1][0] >= depth:
            above.pop()
        for name in names.rstrip(", ").split(", "):
            found[name] = above[-1][1] if above else ""
        above.append((depth, names.split(", ")[0]))
    return found


def classes() -> dict[str, type[ChangeoverError]]:
    return {
        name: value
        for name, value in vars(_errors).items()
        if isinstance(value, type) and issubclass(value, ChangeoverError)
    }


def test_the_tree_is_the_one_that_is_drawn() -> None:
    parents = {name: kind.__mro__[1].__name__ for name, kind in classes().items()}
    parents["ChangeoverError"] = ""
    assert drawn_tree() == parents


def test_every_code_is_one_word_and_means_one_class() -> None:
    codes = {name: kind.code for name, kind in classes().items()}
    shared = {"RequestError"}
    assert all(re.fullmatch(r"[a-z_]+", code) for code in codes.values())
    mine = [code for name, code in codes.items() if name not in shared]
    assert len(set(mine)) == len(mine)


RECEIPT = Receipt(session_id="s:1", submission_id="m:1", answer="accepted")
OUTCOME = Outcome(
    session_id="s:1", submission_id="m:1", ending=Ending.FAILED,
    error=Failure(kind="provider_auth", message="no key"),
)  # fmt: skip
RAISED: list[tuple[ChangeoverError, str, str, str]] = [
    # the error, what happened, what was left unchanged, what to do
    (Invalid(field="text", reason="is blank"), "text: is blank", "nothing was sent", ""),
    (TooLarge(what="text", size=9, limit=8), "9 bytes", "nothing was accepted", "send less"),
    (UnknownSession(session_id="s:1"), "no session 's:1'", "nothing was changed", "first sub"),
    (
        UnknownSubmission(session_id="s:1", submission_id="m:1"),
        "no submission 'm:1'", "nothing was changed", "never accepted, or",
    ),
    (UnknownWorker(worker="w"), "no worker 'w'", "nothing was changed", "changeover workers"),
    (UnknownWorker(build="1"), "of build '1'", "nothing was changed", "changeover workers"),
    (Closed(session_id="s:1"), "is closed", "nothing was accepted", "use another session"),
    (SessionHeld(session_id="s:1", remaining_ms=7), "is held by a worker for 7 ms",
     "nothing was changed", "ask again"),
    (Deleted(session_id="s:1"), "was deleted", "nothing was accepted", "begins a new"),
    (
        Busy(session_id="s:1", scope="inbox", depth=64, limit=64, retry_after=timedelta(seconds=1)),
        "inbox of 's:1' holds 64 of 64 sub", "nothing was accepted", "same id after 1 s",
    ),
    *(
        (
            Busy(session_id="s:1", scope=scope, depth=1, limit=0, retry_after=timedelta(seconds=1)),
            happened, "nothing was accepted", "same id after 1 s",
        )
        for scope, happened in (
            ("inbox bytes", "inbox of 's:1' holds 1 of 0 bytes"),
            ("turn", "'s:1' has something to do already"),
            ("receipts", "'s:1' has 1 of 0 receipts"),
            ("memory", "Redis is short of memory, so 's:1' takes nothing"),
            ("later", "later of 's:1' holds 1 of 0"),
        )
    ),
    (
        Busy(
            session_id="s:1", scope="memory", depth=972 * 1024**2, limit=1024**3,
            retry_after=timedelta(seconds=5),
        ),
        "short of memory (972 MiB of 1 GiB)", "nothing was accepted",
        "same id after 5 s; changeover purge",
    ),
    (
        IdReused(session_id="s:1", submission_id="m:1", first=datetime(2026, 1, 2, tzinfo=UTC)),
        "with other content", "nothing was accepted", "use another one",
    ),
    (
        IdExpired(submission_id="m:1", reason="is from the future"),
        "'m:1' is from the future", "nothing was accepted", "use a new id",
    ),
    (
        NotWaiting(session_id="s:1", request_id="r"),
        "'r' of session 's:1' is not waiting", "nothing was accepted", "changeover show s:1",
    ),
    (
        AlreadyDecided(session_id="s:1", request_id="r"),
        "was answered before", "changed nothing", "changeover show s:1 --events",
    ),
    (
        TooManySchedules(count=10_000, limit=10_000),
        "10000 of 10000 schedules", "nothing was changed", "unschedule",
    ),
    (
        WaitTimeout(
            receipt=RECEIPT, waited=timedelta(seconds=5), due=datetime(2026, 12, 1, tzinfo=UTC)
        ),
        "has not ended after 5 s",
        "it is due at 2026-12-01T00:00:00Z;", "client.wait('s:1', 'm:1')",
    ),
    (
        WaitTimeout(receipt=RECEIPT, waited=timedelta(seconds=5)),
        "has not ended after 5 s", "it goes on", "client.wait('s:1', 'm:1')",
    ),
    (NotCompleted(OUTCOME), "failed: no key", "the session is usable", "changeover show s:1"),
    (
        StoreUnavailable(reason="timeout", submission_id="m:1"),
        "did not answer: timeout", "may or may not be accepted", "with id 'm:1' is safe",
    ),
    (
        StoreUnavailable(reason="Timeout", where="rediss://h:6379/0"),
        "answers at rediss://h:6379/0: Timeout", "nothing was sent", "TLS, use redis://",
    ),
    *(
        (StoreUnavailable(reason=reason, where=where), reason, "nothing was sent", remedy)
        for where, reason, remedy in (
            ("rediss://h", "certificate verify failed: x", "ssl_ca_certs in the URL; else"),
            ("rediss://h", "certificate verify failed: Hostname mismatch", "certificate names"),
            ("rediss://h", "alert certificate required", "ssl_certfile and ssl_keyfile"),
            ("redis+cluster://h", "cluster support disabled", "use redis://; else start it"),
            ("redis+sentinel://h/x", "No master found for 'x'", "the name of the service"),
            ("redis://h", "Connection refused", "sent; start it"),
        )
    ),
    (StoreUnavailable(reason="x"), "did not answer", "the outcome is unknown", "try again"),
    (
        NotDurable(
            durability="replica", confirmed=0, needed=1, waited=timedelta(milliseconds=500),
            submission_id="m:1",
        ),
        "accepted", "0 of 1 replicas confirmed", "with id 'm:1' is safe",
    ),
    (
        NotDurable(
            durability="fsync", confirmed=0, needed=1, waited=timedelta(milliseconds=500)
        ),
        "it was done", "0 of 1 disks confirmed", "asking again is safe",
    ),
    (
        LeaseLost(session_id="s:1", fence=1, current=2),
        "fence 1 was superseded by 2", "nothing was written", "let it go",
    ),
    (LeaseGone(session_id="s:1", fence=1), "was given up", "nothing was written", "let it go"),
    (LeaseExpired(session_id="s:1", fence=1), "expired", "nothing was written", "let it go"),
    (SessionDeleted(session_id="s:1"), "was deleted", "nothing was written", "let it go"),
    (
        PartitionMismatch(prefix="co", fleet=64, asked=32),
        "has 64 partitions, you asked for 32", "nothing was written", "CHANGEOVER_PARTITIONS",
    ),
    (
        FormatTooNew(what="session 's:1'", found="2"),
        "has format 2", "nothing was changed", "upgrade this process",
    ),
    (
        ServerUnfit(["too old", "evicts keys"]),
        "cannot be used: too old; evicts keys", "nothing was written", "put that right",
    ),
    (
        AppNotFound(target="bot:ap", reason="no attribute"),
        "no app at 'bot:ap': no attribute", "nothing was claimed", "bot:app",
    ),
    (
        AppFailed(reason="OSError: no database"),
        "lifespan failed: OSError: no database", "nothing was claimed", "start the worker again",
    ),
    (
        BindFailed(bind="0.0.0.0:80", reason="Permission denied"),
        "cannot listen on '0.0.0.0:80': Permission denied", "nothing was claimed",
        "CHANGEOVER_HEALTH_BIND",
    ),
    (
        ExtraMissing(what="openai", extra="openai"),
        "openai needs a part", "nothing was started", "pip install 'changeover[openai]'",
    ),
    (
        KeyMissing(what="openai:gpt", variable="OPENAI_API_KEY"),
        "has no API key", "nothing was sent", "OPENAI_API_KEY",
    ),
    (
        PayloadKeyMissing(what="an item of session 's:1'", key_id="00ff"),
        "is encrypted with key 00ff, which this process does not have", "nothing was changed",
        "CHANGEOVER_PAYLOAD_KEYS",
    ),
    (
        PayloadDamaged(what="an item of session 's:1'", key_id="00ff"),
        "does not open with its key 00ff", "nothing was changed", "delete the session",
    ),
    (
        StepFailed(step="charge", text="ValueError: no card"),
        "step 'charge' failed: ValueError: no card",
        "it is not run again in this turn",
        "catch it, or let the turn fail",
    ),
    (
        OutcomeUnknown(step="charge"),
        "step 'charge' may or may not have run",
        "it is not run again in this turn",
        "look what became of it, then decide",
    ),
    (ToolError("the text for the model"), "the text for the model", "", ""),
    (StopTurn("no_stock", "nothing is left to sell"), "nothing is left to sell", "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("error", "happened", "unchanged", "remedy"), RAISED)
def test_a_text_says_what_happened_what_was_left_unchanged_and_what_to_do(
    error: ChangeoverError, happened: str, unchanged: str, remedy: str
) -> None:
    text = str(error)
    assert happened in text and unchanged in text and remedy in text
    assert text.find(happened) <= (text.find(unchanged) if unchanged else len(text))
    assert not text.endswith(".")


def test_every_text_has_all_three_parts() -> None:
    # `Invalid` says in its reason what the field must be; a tool's text is the author's.
    exempt = (Invalid, StopTurn, ToolError)
    for error, _, unchanged, remedy in RAISED:
        if not isinstance(error, exempt):
            assert unchanged and remedy, f"{type(error).__name__}: {error}"


def test_every_error_that_is_raised_is_shown_here() -> None:
    abstract = {ChangeoverError, RequestError, LeaseError, SetupError, PayloadError}
    shown = {type(error) for error, *_ in RAISED}
    endings = {kind for kind in classes().values() if issubclass(kind, NotCompleted)}
    assert shown | endings | abstract == set(classes().values())


@pytest.mark.parametrize(
    ("where", "reason"),
    [("redis://h:1/0", "refused"), ("rediss://h:1/0", "[SSL: CERTIFICATE_VERIFY_FAILED] expired")],
)
def test_a_url_is_not_blamed_for_tls_that_it_does_not_ask_for_or_that_is_spoken(
    where: str, reason: str
) -> None:
    assert "TLS" not in str(StoreUnavailable(reason=reason, where=where))


def test_what_was_given_can_be_asked_for() -> None:
    error = Busy(session_id="s", scope="inbox", depth=1, limit=2, retry_after=timedelta(seconds=3))
    found: dict[str, Any] = vars(error)
    assert found == {
        "session_id": "s", "scope": "inbox", "depth": 1, "limit": 2,
        "retry_after": timedelta(seconds=3),
    }  # fmt: skip
    assert ToolError("x", retryable=True).retryable
    assert not ToolError("x").retryable


def test_an_invalid_value_is_a_value_error_as_well() -> None:
    assert issubclass(Invalid, ValueError)
