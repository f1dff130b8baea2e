"""`changeover top`: workers, queues and rates, once a second."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated

import typer

from changeover._glance import Glance
from changeover._operator import Operator
from changeover.cli._exits import facts
from changeover.cli._glances import Line, Size, lines_of
from changeover.cli._options import Json, Redis
from changeover.cli._output import one_line, say, say_json
from changeover.cli._terminal import drawn, is_live
from changeover_shared._errors import StoreUnavailable
from changeover_shared._units import duration, show_duration

Show = Callable[[Glance], None]
Lose = Callable[[StoreUnavailable], None]


def top(
    interval: Annotated[
        str, typer.Option("--interval", metavar="SPAN", help="How often to look: 1s, 500ms.")
    ] = "1s",
    once: Annotated[
        bool, typer.Option("--once", help="Look once; so it is too when this is no terminal.")
    ] = False,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Watch workers, queues and rates, once a second; q quits.

    With --json, one object a line for each look.
    """
    every = duration(interval, field="interval")
    if as_json:
        asyncio.run(_told(redis, every, once=once))
    elif once or not is_live():
        asyncio.run(_printed(redis))
    else:
        asyncio.run(_watched(redis, every))


async def _printed(redis: str | None) -> None:
    async with Operator(redis) as operator:
        async for glance in operator.watch():
            for line in lines_of(glance):
                say(line.text, style=line.style)
            return


async def _told(redis: str | None, every: timedelta, *, once: bool) -> None:
    async with Operator(redis) as operator:
        if once:
            async for glance in operator.watch(every=every):
                say_json(glance)
                return

        def lose(error: StoreUnavailable) -> None:
            typer.echo(json.dumps({"error": facts(error)}, ensure_ascii=False), err=True)

        await _again_and_again(operator, every, say_json, lose)


async def _watched(redis: str | None, every: timedelta) -> None:
    screen, quitting = _Screen(), asyncio.Event()
    async with Operator(redis) as operator:
        with drawn(screen.draw, quitting.set) as refresh:

            def show(glance: Glance) -> None:
                screen.show(glance)
                refresh()

            def lose(error: StoreUnavailable) -> None:
                screen.lose(error)
                refresh()

            looking = asyncio.create_task(_again_and_again(operator, every, show, lose))
            quit_asked = asyncio.create_task(quitting.wait())
            try:
                await asyncio.wait({looking, quit_asked}, return_when=asyncio.FIRST_COMPLETED)
                if looking.done():
                    looking.result()
            finally:
                looking.cancel()
                quit_asked.cancel()
                await asyncio.gather(looking, quit_asked, return_exceptions=True)


async def _again_and_again(operator: Operator, every: timedelta, show: Show, lose: Lose) -> None:
    """Look for ever; while Redis is away, say so and try again."""
    while True:
        try:
            async for glance in operator.watch(every=every):
                show(glance)
        except StoreUnavailable as error:
            lose(error)
            await asyncio.sleep(every.total_seconds())


class _Screen:
    """What is on the terminal: the newest look, and why there is none that is newer."""

    def __init__(self) -> None:
        self._glance: Glance | None = None
        self._seen_at = time.monotonic()
        self._why = ""

    def show(self, glance: Glance) -> None:
        """Another look."""
        self._glance, self._seen_at, self._why = glance, time.monotonic(), ""

    def lose(self, error: StoreUnavailable) -> None:
        """A look to which nobody answered."""
        self._why = error.reason

    def draw(self, size: Size) -> Sequence[Line]:
        """The lines that fit."""
        if self._glance is None:
            waiting = self._why or "looking ..."
            return [Line(one_line(waiting, size.width))]
        lost = ""
        if self._why:
            age = show_duration(timedelta(seconds=time.monotonic() - self._seen_at))
            lost = f"Redis does not answer, this is {age} old: {one_line(self._why)}"
        return lines_of(self._glance, size, lost=lost, foot="q quits")
