"""Joins the pieces of streamed tool calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import uuid4

from changeover_shared._items import ToolCall
from changeover_worker._models.contents import is_whole


@dataclass(slots=True)
class CallDraft:
    """A tool call that is still arriving."""

    call_id: str
    given_id: str = ""
    """The id as the provider wrote it; `call_id` differs if the conversation has it already."""
    name: str = ""
    closed: bool = False
    """The provider said that nothing more of it comes."""
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        """What has arrived."""
        return "".join(self.pieces)

    def call(self, *, settled: bool) -> ToolCall:
        """The call as it stands; if it is settled, no arguments mean that it takes none."""
        arguments = self.arguments
        if settled and not arguments.strip():
            arguments = "{}"
        return ToolCall(call_id=self.call_id, name=self.name, arguments=arguments)


class CallDrafts:
    """The tool calls of one answer, in the order in which they began.

    A piece belongs to the call of its index if it has one, else of its id, else of its position
    among the pieces that came together. Indexes lie: a new id at a used index is a new call.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self.drafts: list[CallDraft] = []
        self._taken = set(taken)
        self._by_index: dict[int, CallDraft] = {}
        self._by_id: dict[str, CallDraft] = {}

    def piece(
        self, *, index: int | None, given_id: str, name: str, arguments: str, position: int = 0
    ) -> CallDraft:
        """Add a piece and return the call that it belongs to.

        `position` is the number of the call that a piece without index and id goes on with.
        """
        draft = self._find(index, given_id, name, position)
        if draft is None:
            draft = self._begin(given_id)
        if index is not None:
            self._by_index[index] = draft
        draft.name = draft.name or name
        if arguments:
            draft.pieces.append(arguments)
        return draft

    def _find(self, index: int | None, given_id: str, name: str, position: int) -> CallDraft | None:
        if index is not None:
            draft = self._by_index.get(index)
            if draft is None or not given_id or not draft.given_id or draft.given_id == given_id:
                return draft
            return self._by_id.get(given_id)
        if given_id:
            return self._by_id.get(given_id)
        if position >= len(self.drafts):
            return None
        draft = self.drafts[position]
        # A name behind a whole call begins another one.
        return None if name and is_whole(draft.arguments) else draft

    def _begin(self, given_id: str) -> CallDraft:
        draft = CallDraft(call_id=self._unused(given_id), given_id=given_id)
        self.drafts.append(draft)
        if given_id:
            self._by_id[given_id] = draft
        return draft

    def _unused(self, given_id: str) -> str:
        """Some servers count their calls from zero in each answer; a session needs each id once."""
        call_id = given_id or f"call_{uuid4().hex}"
        if call_id in self._taken:
            call_id = f"call_{uuid4().hex}"
        self._taken.add(call_id)
        return call_id
