"""Errors as exit codes and as data."""

from __future__ import annotations

from datetime import timedelta

import pytest

from changeover.cli._exits import code_of_refusal, exit_code, facts
from changeover_shared import _errors
from changeover_shared._errors import (
    AlreadyDecided,
    Busy,
    ChangeoverError,
    Closed,
    DeadLettered,
    Deleted,
    ExtraMissing,
    IdExpired,
    IdReused,
    Invalid,
    LeaseError,
    NotWaiting,
    OutcomeUnknown,
    PartitionMismatch,
    PayloadDamaged,
    PayloadError,
    PayloadKeyMissing,
    RequestError,
    ServerUnfit,
    SetupError,
    StepFailed,
    StopTurn,
    StoreUnavailable,
    TooLarge,
    ToolError,
    TurnAborted,
    TurnFailed,
    UnknownSession,
    UnknownSubmission,
    WaitTimeout,
)

OF_WORKERS = LeaseError | OutcomeUnknown | StepFailed | StopTurn | ToolError
CODES = {
    TurnFailed: 1,
    TurnAborted: 1,
    DeadLettered: 1,
    Invalid: 2,
    TooLarge: 2,
    UnknownSession: 3,
    UnknownSubmission: 3,
    Busy: 4,
    Closed: 4,
    Deleted: 4,
    IdReused: 4,
    IdExpired: 4,
    NotWaiting: 4,
    AlreadyDecided: 4,
    StoreUnavailable: 5,
    WaitTimeout: 6,
    PartitionMismatch: 78,
    PayloadDamaged: 78,
    PayloadError: 78,
    PayloadKeyMissing: 78,
    ServerUnfit: 78,
    ExtraMissing: 78,
}


@pytest.mark.parametrize(("kind", "code"), CODES.items())
def test_each_error_has_the_exit_code_of_its_row(kind: type[ChangeoverError], code: int) -> None:
    assert exit_code(kind.__new__(kind)) == code


def test_only_what_no_producer_can_meet_counts_as_a_bug() -> None:
    every = [
        kind
        for kind in vars(_errors).values()
        if isinstance(kind, type) and issubclass(kind, ChangeoverError)
    ]
    bugs = {kind for kind in every if exit_code(kind.__new__(kind)) == 70}
    expected = {k for k in every if issubclass(k, OF_WORKERS)}
    assert bugs == expected | {ChangeoverError}
    assert not any(issubclass(kind, RequestError | SetupError) for kind in bugs)


@pytest.mark.parametrize(
    ("word", "code"),
    [("busy", 4), ("closed", 4), ("too_large", 2), ("invalid", 2), ("store_unavailable", 5)],
)
def test_a_refusal_of_many_has_the_code_of_its_error(word: str, code: int) -> None:
    assert code_of_refusal(word) == code


def test_an_error_as_data_has_its_code_its_text_and_its_attributes() -> None:
    error = Busy(
        session_id="s", scope="inbox", depth=64, limit=64, retry_after=timedelta(seconds=1.5)
    )
    assert facts(error) == {
        "code": "busy",
        "message": str(error),
        "session_id": "s",
        "scope": "inbox",
        "depth": 64,
        "limit": 64,
        "retry_after_ms": 1500,
    }
