"""A handler that is run again: its durable calls are answered from what the turn has recorded.

The records are the turn's `StepRecord`s in the transcript, in the order in which the calls ended.
A handler makes its calls one at a time, so its i-th call must be the i-th record: a call of
another kind or name means that the code between the steps does not repeat.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from pydantic import TypeAdapter

from changeover_shared._checkpoint import HandlerStep
from changeover_shared._errors import OutcomeUnknown, StepFailed
from changeover_shared._events import Failure
from changeover_shared._items import Json, StepKind, StepRecord, UserMessage
from changeover_worker._models.model import ModelError, ModelResponse
from changeover_worker._turn.durable import DurableCall, called

_RESPONSE: Final = TypeAdapter(ModelResponse)
_MESSAGES: Final = TypeAdapter(list[UserMessage])


class Mismatch(Exception):
    """The handler went another way than what is recorded; the text says both."""


class Replay:
    """What a turn has recorded, asked for once more from the top."""

    def __init__(self, records: Iterable[StepRecord], running: HandlerStep | None) -> None:
        self._records = list(records)
        self._running = running
        self._asked = 0

    @property
    def asked(self) -> int:
        """How many calls have been answered."""
        return self._asked

    def next(self, call: DurableCall) -> StepRecord | None:
        """The record that answers the next call; None if that has not ended yet.

        Raises `Mismatch`.
        """
        if self._asked == len(self._records):
            if self._running is not None:
                self._match(self._running.kind, self._running.name, call)
            return None
        record = self._records[self._asked]
        self._match(record.kind, record.name, call)
        self._asked += 1
        return record

    def add(self, record: StepRecord) -> None:
        """Follow a commit that records the call that was next."""
        self._records.append(record)
        self._running = None
        self._asked += 1

    def end(self) -> None:
        """The handler returned. Raises `Mismatch` if it left recorded calls out."""
        left: list[HandlerStep | StepRecord] = [*self._records[self._asked :]]
        if self._running is not None:
            left.append(self._running)
        if left:
            was = called(left[0].kind, left[0].name)
            raise Mismatch(
                f"call {self._asked + 1} of the turn was {was}, now the handler returns before it"
            )

    def _match(self, kind: StepKind, name: str, call: DurableCall) -> None:
        if (kind, name) != (call.kind, call.name):
            was, now = called(kind, name), called(call.kind, call.name)
            raise Mismatch(f"call {self._asked + 1} of the turn was {was}, now it is {now}")


def answer_of(record: StepRecord) -> Any:
    """What the call came to: its value.

    Raises `OutcomeUnknown`, `StepFailed` or `ModelError`, if it came to that.
    """
    if record.unknown:
        raise OutcomeUnknown(step=record.name)
    if record.kind == "model":
        return _response(record)
    if record.kind == "steering":
        return tuple(_MESSAGES.validate_python(record.output))
    if record.is_error:
        raise StepFailed(step=record.name, text=str(record.output))
    return record.output


def response_json(response: ModelResponse) -> Json:
    """A response as its record keeps it."""
    body: Json = _RESPONSE.dump_python(response, mode="json")
    return body


def _response(record: StepRecord) -> ModelResponse:
    if not record.is_error:
        return _RESPONSE.validate_python(record.output)
    failure = Failure.model_validate(record.output)
    wish = failure.retry_after_ms
    raise ModelError(
        kind=failure.kind,
        message=failure.message,
        retryable=failure.retryable,
        retry_after=None if wish is None else timedelta(milliseconds=wish),
    )
