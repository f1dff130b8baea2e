"""One session that somebody finds in some state: what brings it there, and what it does then.

`m1` is what the session does when something else comes; each message's text is its id.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from changeover_shared._items import AssistantMessage, ToolCall, UserMessage
from changeover_shared._policies import AnyPolicy
from changeover_shared._words import Status
from changeover_worker import Emit, ModelError, ModelRequest, ModelResponse
from changeover_worker._session.held import Held
from changeover_worker._session.runner import RunEnd
from tests.support.holding import Bench
from tests.support.recovering import SECOND, Blocking, app_of

VECTORS: Final = Path(__file__).parent.parent / "vectors"
SHORT: Final[dict[str, Callable[[Any], str]]] = {
    "session_configured": lambda e: "configured",
    "message": lambda e: f"message {e.submission_id}",
    "turn_started": lambda e: f"{e.turn_id} started by {' '.join(e.submission_ids)}",
    "submission_merged": lambda e: f"{e.submission_id} merged into {e.turn_id} of {e.by}",
    "submission_superseded": lambda e: f"{e.submission_id} superseded by {e.by}",
    "step_started": lambda e: f"step {e.index} started",
    "step_completed": lambda e: f"step {e.index} {e.ending}",
    "delta": lambda e: f"delta {e.text}",
    "assistant_message": lambda e: f"says {e.text}",
    "tool_call_begin": lambda e: f"{e.name} begins",
    "tool_call_end": lambda e: f"{e.name} ends{', unknown' * e.unknown}",
    "turn_parked": lambda e: f"{e.turn_id} parked: {e.reason}",
    "turn_resumed": lambda e: f"{e.turn_id} resumed: {e.reason}",
    "context_rolled_back": lambda e: f"{e.to} rolled back",
    "warning": lambda e: f"warning {e.code}",
    "worker_changed": lambda e: f"worker {e.reason}",
    "turn_completed": lambda e: f"{e.turn_id} completed for {' '.join(e.submission_ids)}",
    "turn_aborted": lambda e: f"{e.turn_id} aborted for {' '.join(e.submission_ids)}",
}  # fmt: skip
"""How an event stands in a vector."""


class Paced:
    """A model whose first answer can be held up, or fail; its others are `ok`."""

    name = "paced"

    def __init__(self, first: ModelResponse | ModelError | None = None) -> None:
        self.first = first
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.shown: list[str] = []
        """What people have said, as it was shown last."""

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        said = (item for item in request.items if isinstance(item, UserMessage))
        self.shown = [item.text for item in said if item.author == "user"]
        if not self.started.is_set():
            self.started.set()
            if isinstance(self.first, ModelError):
                raise self.first
            if self.first is not None:
                return self.first
            await self.go.wait()
        return ModelResponse(AssistantMessage(text="ok"))


@dataclass
class Cell:
    """One session, and what runs it."""

    on: Bench
    policy: AnyPolicy
    model: Paced = field(default_factory=Paced)
    tool: Blocking = field(default_factory=lambda: Blocking("look"))

    async def begin(self) -> tuple[asyncio.Task[RunEnd], Held]:
        await self.on.submit("m1")
        return await self.on.begin(app_of(self.model, self.tool.tool))

    async def run(self, incarnation: str = "w:00000001") -> None:
        self.model.go.set()
        self.tool.go.set()
        await self.on.run(app_of(self.model, self.tool.tool), incarnation)


ASKS_FOR_THE_TOOL: Final = ModelResponse(
    AssistantMessage(tool_calls=(ToolCall(call_id="c1", name="look", arguments="{}"),))
)
State = Callable[[Cell], AsyncGenerator[None]]


async def idle(cell: Cell) -> AsyncGenerator[None]:
    """`m1` has been answered before."""
    await cell.on.submit("m1")
    await cell.run()
    yield


async def queued(cell: Cell) -> AsyncGenerator[None]:
    """`m1` waits, as one that wants a turn of its own."""
    await cell.on.submit("m1")
    yield


async def queued_behind_its_like(cell: Cell) -> AsyncGenerator[None]:
    """`m1` waits under the same policy."""
    await cell.on.submit("m1", policy=cell.policy)
    yield


async def running_model(cell: Cell) -> AsyncGenerator[None]:
    """The model is thinking, and will answer."""
    run, held = await cell.begin()
    await cell.model.started.wait()
    yield
    await cell.on.hear(held)
    if not held.interrupted:
        cell.model.go.set()
    await run


async def running_tool(cell: Cell) -> AsyncGenerator[None]:
    """A tool runs, and the model will be asked again."""
    cell.model.first = ASKS_FOR_THE_TOOL
    run, held = await cell.begin()
    await cell.tool.started.wait()
    yield
    await cell.on.hear(held)
    if not held.interrupted:
        cell.tool.go.set()
    await run


async def parked(cell: Cell) -> AsyncGenerator[None]:
    """The provider wants to be left alone; nobody has the session."""
    cell.model.first = ModelError(
        kind="rate_limit", message="later", retryable=True, retry_after=timedelta(seconds=30)
    )
    run, _ = await cell.begin()
    await run
    assert await cell.on.status() is Status.PARKED
    yield
    head = await cell.on.stores.worker.read_head(cell.on.session)
    if head is None or not head.ctl_turn:
        await cell.on.pass_time(31_000)  # a control does not wait for that


async def handed_off_in_the_middle(cell: Cell) -> AsyncGenerator[None]:
    """Its worker left it at a step boundary; nobody has the session."""
    cell.model.first = ASKS_FOR_THE_TOOL
    run, held = await cell.begin()
    await cell.tool.started.wait()
    held.drain()
    cell.tool.go.set()
    assert (await run).how == "handed_off"
    yield
    await cell.run(SECOND)


async def taken_over_in_the_middle(cell: Cell) -> AsyncGenerator[None]:
    """Its worker has died while the model was thinking; nobody has the session."""
    run, held = await cell.begin()
    await cell.model.started.wait()
    await cell.on.die(run, held)
    yield
    await cell.run(SECOND)


STATES: Final = (
    idle, queued, queued_behind_its_like, running_model, running_tool, parked,
    handed_off_in_the_middle, taken_over_in_the_middle,
)  # fmt: skip


@asynccontextmanager
async def found(cell: Cell, state: State) -> AsyncIterator[None]:
    """The session in a state; afterwards it goes on until nothing is left to do."""
    async with asynccontextmanager(state)(cell):
        yield
    while await is_busy(cell.on):
        await cell.on.pass_quiet()
        await cell.run()


async def is_busy(on: Bench) -> bool:
    work = await on.stores.worker.read_work(on.session)
    return await on.status() is not Status.IDLE or bool(work.waiting)


async def told(cell: Cell, *ids: str) -> str:
    """What became of it: the journal, what the model was shown last, and how each ended."""
    events = await cell.on.events()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    lines = [SHORT[event.type](event) for event in events]
    endings = {id: await ending(cell.on, id) for id in ids}
    return "\n".join(
        [
            *lines,
            f"= shown {' '.join(cell.model.shown)}",
            f"= {', '.join(f'{id} {how}' for id, how in endings.items())}",
        ]
    )


async def ending(on: Bench, id: str) -> str:
    (state,) = await on.stores.producer.submissions([(on.session, id)])
    return "refused" if state is None else str(state.ending)


def vectors(name: str) -> dict[str, str]:
    """The sections of a file of journals by their titles."""
    parts = re.split(r"^## (.+)\n", (VECTORS / name).read_text(), flags=re.M)[1:]
    return {title: body.strip() for title, body in zip(parts[::2], parts[1::2], strict=True)}


def titled(what: str, state: State) -> str:
    """The title of a section."""
    return f"{what}, {state.__name__.replace('_', ' ')}"
