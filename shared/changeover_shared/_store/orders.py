"""What an operator wants of one incarnation, and what it answers when it has done so.

An order is addressed to an incarnation, so a successor of the same name is not meant. It lies in a
key that ends by itself; a bell makes the worker look, which looks by itself while it holds
something. What it answers takes the place of the order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from pydantic import ValidationError

from changeover_shared._store.fleet import Fleet
from changeover_shared._store.records import Order

ORDER_MS: Final = 3_600_000
"""How long an order waits for a worker that is frozen; one that says nothing for so long leaves the
registry as well."""
ANSWER_MS: Final = 600_000
"""How long it can be read what became of an order."""


class Orders:
    """Gives orders and reads them. Every call may be repeated. Raises `StoreUnavailable`."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def give(self, incarnation: str, order: Order) -> None:
        """Tell an incarnation; it hears it within a second if it lives."""
        keys, call = self._fleet.keys, self._fleet.keys.call(incarnation)
        said = order.model_dump_json(exclude_defaults=True)
        await self._fleet.executor.command("SET", keys.order(incarnation), said, "PX", ORDER_MS)
        await self._fleet.executor.commands(
            [("ZADD", call, order.given_ms, "order"), ("PEXPIRE", call, ORDER_MS)]
        )

    async def answer(self, incarnation: str, order: Order) -> None:
        """Say what became of an order, in its place."""
        said = order.model_dump_json(exclude_defaults=True)
        key = self._fleet.keys.order(incarnation)
        await self._fleet.executor.command("SET", key, said, "PX", ANSWER_MS)

    async def read(self, incarnations: Sequence[str]) -> tuple[Order | None, ...]:
        """The order of each, or its answer; None where there is none, or it cannot be read."""
        if not incarnations:
            return ()
        asked = [("GET", self._fleet.keys.order(one)) for one in incarnations]
        return tuple(_read(value) for value in await self._fleet.executor.commands(asked))


def _read(value: bytes | None) -> Order | None:
    if value is not None:
        with suppress(ValidationError):
            return Order.model_validate(json.loads(value))
    return None
