"""`changeover chat`: talk to a session from this terminal."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import typer

from changeover._client import Client
from changeover.cli._lines import Lines
from changeover.cli._options import Agent, Json, Redis, Session
from changeover.cli._output import note, say, shown
from changeover_shared._events import (
    AssistantSaid,
    Delta,
    Event,
    Message,
    StepCompleted,
)
from changeover_shared._words import StepEnding


def chat(session: Session, agent: Agent = None, redis: Redis = None, as_json: Json = False) -> None:
    """Talk to a session from this terminal.

    Ctrl-C interrupts the running turn, Ctrl-D leaves.
    """
    prompt = ""
    if sys.stdin.isatty():
        note("Ctrl-C interrupts a turn, Ctrl-D leaves")
        prompt = "> "
    with asyncio.Runner() as runner:
        client = Client(redis)
        try:
            runner.run(client.__aenter__())
            while (text := _read(prompt)) is not None:
                if text.strip():
                    runner.run(_turn(client, session, text, agent, Reply(as_json=as_json)))
        finally:
            runner.run(client.aclose())


def _read(prompt: str) -> str | None:
    """A line from the person; None at the end, and an empty one for Ctrl-C."""
    try:
        return input(prompt)
    except EOFError:
        return None
    except KeyboardInterrupt:
        typer.echo()
        return ""


class Reply:
    """Writes a turn as it streams."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._lines = Lines("")
        self._open = False
        """The line on the screen is not at its end."""
        self._streamed = ""

    def show(self, event: Event) -> None:
        """Write what an event adds."""
        if self._as_json:
            typer.echo(event.to_json())
            return
        match event:
            case Delta():
                self._streamed += event.text
                self._write(event.text)
            case AssistantSaid():
                # Only what the stream has not shown: the rest of it, or all.
                if event.text.startswith(self._streamed):
                    self._write(event.text.removeprefix(self._streamed))
                else:
                    self.end_line()
                    self._write(event.text)
                self.end_line()
            case StepCompleted() if event.ending is not StepEnding.COMPLETED:
                self.end_line()
                self._tell(event)
            case Message():
                return
            case _:
                self._tell(event)

    def end_line(self) -> None:
        """Go to a new line unless the screen is at one."""
        if self._open:
            say()
        self._open, self._streamed = False, ""

    def _tell(self, event: Event) -> None:
        for line in self._lines.of(event):
            self.end_line()
            note(line)

    def _write(self, text: str) -> None:
        if text:
            say(shown(text), end="")
            self._open = True


async def _turn(client: Client, session: str, text: str, agent: str | None, reply: Reply) -> None:
    """Send a message and show what comes until it has ended. Raises `KeyboardInterrupt` when
    somebody presses Ctrl-C again while the turn is being interrupted."""
    async with _interrupting(client, session):
        receipt = await client.submit(session, text, agent=agent)
        async for event in client.follow(session, after=receipt.seq, until=receipt.submission_id):
            reply.show(event)
    reply.end_line()


@asynccontextmanager
async def _interrupting(client: Client, session: str) -> AsyncIterator[None]:
    """Within this, Ctrl-C interrupts the session's turn; a second one ends the chat."""
    loop = asyncio.get_running_loop()
    turn = asyncio.current_task()
    asked: list[asyncio.Task[object]] = []

    def on_interrupt() -> None:
        if asked and turn is not None:
            turn.cancel()
        else:
            note("interrupting the turn; Ctrl-C again leaves")
            asked.append(loop.create_task(client.interrupt(session)))

    loop.add_signal_handler(signal.SIGINT, on_interrupt)
    try:
        yield
        for task in asked:
            await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
