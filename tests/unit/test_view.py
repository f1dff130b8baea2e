"""The one reducer, against the vectors that every other reader of a journal must pass as well."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from changeover_shared._events import Delta, Event, Gap, Message
from changeover_shared._view import View
from tests.support.flat_events import event_of

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "vectors" / "view.json").read_text()
)


def events_of(vector: dict[str, Any]) -> list[Event]:
    return [event_of(event) for event in vector["events"]]


def shown(view: View) -> dict[str, Any]:
    return view.model_dump(mode="json", exclude_defaults=True)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_journal_folds_to_its_view(vector: dict[str, Any]) -> None:
    assert shown(View().apply_all(events_of(vector))) == vector["view"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_journal_delivered_twice_over_folds_to_the_same_view(vector: dict[str, Any]) -> None:
    twice = [event for event in events_of(vector) for _ in range(2)] + events_of(vector)
    assert shown(View().apply_all(twice)) == vector["view"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_view_that_was_stored_in_mid_journal_goes_on_to_the_same_view(
    vector: dict[str, Any],
) -> None:
    events = events_of(vector)
    for cut in range(len(events)):
        stored = View().apply_all(events[:cut]).model_dump_json()
        assert shown(View.model_validate_json(stored).apply_all(events[cut:])) == vector["view"]


def test_a_view_is_frozen_and_a_repeat_answers_with_the_view_itself() -> None:
    view = View().apply(Message(seq=1, text="hi", submission_id="s-1"))
    assert view.apply(Message(seq=1, text="hi", submission_id="s-1")) is view
    with pytest.raises(ValidationError):
        view.seq = 2  # type: ignore[misc]


def test_what_a_rewound_journal_lost_leaves_the_view_and_the_numbers_count_again() -> None:
    said = [Message(seq=seq, text=f"{seq}", submission_id=f"s-{seq}") for seq in (94, 96, 97)]
    view = View().apply_all([*said, Gap(seq=95, first=96, last=97, reason="rewound")])
    assert ([m.text for m in view.messages], view.seq, view.complete) == (["94"], 95, False)
    view = view.apply(Message(seq=96, text="instead", submission_id="s-96"))
    assert [m.text for m in view.messages] == ["94", "instead"]


def test_text_of_a_step_never_runs_on_into_another_step() -> None:
    view = View().apply_all(
        [Delta(seq=4, step_id="p-1", text="old"), Delta(seq=9, step_id="p-2", text="new")]
    )
    assert view.text == "new"
