"""One context as it goes to the model: valid, with large results cut short."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from changeover_shared._items import Item, ToolResult
from changeover_worker._turn.context import Entry, flaw, mended
from changeover_worker._turn.offload import is_offered, shortened


@dataclass(frozen=True)
class Shown:
    """What a model is shown, and what of it is only a part."""

    entries: tuple[Entry, ...]
    large: Mapping[int, ToolResult]
    """The whole of each result that is shown in part, by its number."""

    @cached_property
    def flaw(self) -> str:
        """What was wrong with what is stored; '' as a rule."""
        return flaw([entry.item for entry in self.entries]) if self.entries else ""

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """The items, mended if need be."""
        return mended([entry.item for entry in self.entries]) if self.entries else ()

    @property
    def offers_reading(self) -> bool:
        """Whether the model can ask for more of what it is shown."""
        return is_offered(self.items, self.large)


def shown(entries: tuple[Entry, ...], known: dict[int, ToolResult]) -> Shown:
    """Cut large results short; `known` remembers by number how a result is shown."""
    large: dict[int, ToolResult] = {}
    found: list[Entry] = []
    for entry in entries:
        item = entry.item
        if isinstance(item, ToolResult):
            if entry.n not in known:
                known[entry.n] = shortened(entry.n, item)
            if known[entry.n] is not item:
                large[entry.n] = item
            entry = replace(entry, item=known[entry.n])
        found.append(entry)
    return Shown(tuple(found), large)
