"""Submit a chunk of messages through one pipeline, each answered by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from changeover._answers import receipt_of, refused_item, refused_of
from changeover._backoff import pauses
from changeover._submission import Submission, message_submit
from changeover_shared._errors import (
    ChangeoverError,
    Invalid,
    NotDurable,
    RequestError,
    StoreUnavailable,
)
from changeover_shared._results import Receipt, Refused
from changeover_shared._settings import Settings
from changeover_shared._store.attempts import Answer
from changeover_shared._store.records import Submit, Submitted
from changeover_shared._store.store import Store

PATIENCE_S = 30.0
"""How long submissions are sent again, with the same ids, while Redis does not answer."""


async def submit_chunk(
    store: Store, settings: Settings, chunk: Sequence[Submission]
) -> list[Receipt | Refused]:
    """Answer each submission, in order: accepted or refused. Raises only once closed: `Invalid`.

    What Redis did not answer, or not confirm, is sent again with the same id until `PATIENCE_S`
    has passed; such a submission may land behind a later one of its session that was answered at
    once.
    """
    answers: dict[int, Receipt | Refused] = {}
    waiting: list[tuple[int, Submit]] = []
    for place, item in enumerate(chunk):
        try:
            waiting.append((place, message_submit(item, settings)))
        except RequestError as error:
            answers[place] = refused_item(item, error)
    give_up_at = time.monotonic() + PATIENCE_S
    backoff = pauses()
    lost: list[StoreUnavailable | NotDurable] = []
    while waiting:
        try:
            found: Sequence[Answer] = await store.submit_all([submit for _, submit in waiting])
        except Invalid:
            # Closed meanwhile: an earlier attempt may have been accepted, and is not denied.
            if not lost:
                raise
            found, give_up_at = lost, 0.0
        unanswered: list[tuple[int, Submit]] = []
        lost = []
        for (place, submit), answer in zip(waiting, found, strict=True):
            if isinstance(answer, StoreUnavailable | NotDurable) and time.monotonic() < give_up_at:
                unanswered.append((place, submit))
                lost.append(answer)
            elif isinstance(answer, ChangeoverError):
                answers[place] = refused_of(submit.session_id, submit.submission_id, answer)
            else:
                assert isinstance(answer, Submitted), "a message is never answered as a control"
                answers[place] = receipt_of(submit, answer)
        if unanswered:
            await asyncio.sleep(next(backoff))
        waiting = unanswered
    return [answers[place] for place in range(len(chunk))]
