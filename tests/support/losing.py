"""A store to which every script is repeated, because its first reply is lost on the way.

The caller gets the first answer, so a test runs behind the losses as it runs without them; that
the repeat says what it must and changes nothing is checked here, at each call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import hiredis
from redis.exceptions import ResponseError

from changeover_shared._errors import ChangeoverError, StoreUnavailable
from changeover_shared._store.calls import Call
from changeover_shared._store.executor import Executor
from changeover_shared._store.scripts import Value
from changeover_worker.testing._snapshot import every_key
from tests.support.driving import text
from tests.support.proxy import Proxy, proxy_before
from tests.support.repeats import changed_wrongly, expected, timeless

LOSING = "losing"
"""What the target is called."""


@dataclass
class Losses:
    """Where replies are lost, and a connection beside it to compare what Redis holds."""

    proxy: Proxy
    aside: Executor
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A lost reply takes its connection along, and with it whatever else was on the way."""

    async def connect(self) -> Executor:
        """Connect a client behind the losses."""
        executor = await LosingExecutor.connect(self.proxy.url)
        executor.losses_of = self
        return executor


class LosingExecutor(Executor):
    """Loses the first reply to every script, and looks hard at the repeat."""

    losses_of: Losses

    async def run(self, call: Call) -> list[Any]:
        async with self.losses_of.one_at_a_time:
            first = await self._lost(call)
            await self._repeat(call, first)
        if isinstance(first, Exception):
            raise first
        self.clock.saw(int(first[-1]))
        return [first[0].decode(), *first[1:-1]]

    async def run_all(self, calls: Sequence[Call]) -> list[list[Any] | Exception]:
        """One by one, so that each of them loses a reply of its own."""
        answers: list[list[Any] | Exception] = []
        for call in calls:
            try:
                answers.append(await self.run(call))
            except ChangeoverError as error:
                answers.append(error)
        return answers

    async def command(self, *args: Value) -> Any:
        async with self.losses_of.one_at_a_time:
            return await super().command(*args)

    async def commands(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        async with self.losses_of.one_at_a_time:
            return await super().commands(commands)

    async def _lost(self, call: Call) -> Any:
        """Run the script and lose its reply, which is returned as it was on the wire."""
        proxy = self.losses_of.proxy
        already = len(proxy.lost)
        proxy.lose_next()
        try:
            told = await super().run(call)
        except StoreUnavailable:
            (lost,) = proxy.lost[already:]
        else:
            raise AssertionError(f"nothing was lost: {told}")
        reader = hiredis.Reader(replyError=ResponseError)
        reader.feed(lost.reply.raw)
        return reader.gets()

    async def _repeat(self, call: Call, first: Any) -> None:
        name = call.script.name
        aside = self.losses_of.aside
        before = await every_key(aside)
        try:
            again = await super().run(call)
        except Exception as error:
            assert isinstance(first, Exception), f"{name}: {first}, then {error}"
            assert str(first) in str(error)
        else:
            assert not isinstance(first, Exception), f"{name}: {first}, then {again}"
            wanted = expected(name, text(first[:-1]))
            found = timeless(name, text(again))
            assert found == wanted, f"the repeat of {name} has another answer"
        wrong = changed_wrongly(name, before, await every_key(aside))
        assert not wrong, f"the repeat of {name} has changed {wrong}"


@asynccontextmanager
async def losses_before(url: str) -> AsyncIterator[Losses]:
    """The losses before the server of a `redis://` URL."""
    with proxy_before(url) as proxy:
        aside = await Executor.connect(url)
        try:
            yield Losses(proxy, aside)
        finally:
            await aside.aclose()
