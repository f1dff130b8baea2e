"""Random lives of a session: whatever happens to it, each request is valid, in every dialect, and
the transcript only ever grows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from changeover_shared._events import Message, Warned
from changeover_shared._items import AssistantMessage, ToolCall, ToolResult, Usage, UserMessage
from changeover_shared._ops import (
    CompactOp,
    InterruptOp,
    MessageOp,
    Op,
    RollbackOp,
    class_of,
    digest,
    encode_op,
)
from changeover_shared._store.records import Create, Submit
from changeover_worker import Agent, App, Compaction, tool
from changeover_worker._compaction import SUMMARISE
from changeover_worker._models import anthropic_messages, openai_chat, openai_responses
from changeover_worker._models.model import Emit, ModelError, ModelRequest, ModelResponse, TextDelta
from changeover_worker._session import compacting, signals
from changeover_worker._session.signals import Moment
from changeover_worker._turn.context import flaw
from tests.support.holding import ROUTE, Bench, bench

SEEDS = range(12)
ACTIONS = 25


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compacting, "PAUSE_S", 0.0)
    yield
    signals.listen(None)


@tool
async def write(text: str) -> str:
    """Write text."""
    return f"wrote {text}"


@tool(effect="pure")
async def fetch(size: int) -> str:
    """Fetch text."""
    return "é" * size


class Erratic:
    """Answers at random, and checks each request that reaches it."""

    name = "erratic"

    def __init__(self, luck: random.Random) -> None:
        self.luck = luck
        self.asked = 0
        self.summaries = 0

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        assert flaw(request.items) == ""
        for check in (valid_chat, valid_responses, valid_anthropic):
            check(request)
        if request.instructions == SUMMARISE:
            self.summaries += 1
            return self._summary()
        self.asked += 1
        await emit(TextDelta("well, "))
        await asyncio.sleep(0)
        if self.luck.random() < 0.06:
            raise ModelError(kind="provider_auth", message="no", retryable=False)
        calls = tuple(self._call(n) for n in range(self.luck.choice((0, 0, 0, 1, 1, 2, 3))))
        text = "" if calls and self.luck.random() < 0.5 else "said " * self.luck.randint(1, 40)
        message = AssistantMessage(text=text, tool_calls=calls)
        return ModelResponse(message, Usage(input_tokens=5, output_tokens=1))

    def _summary(self) -> ModelResponse:
        if self.luck.random() < 0.25:
            raise ModelError(kind="provider_server", message="no", retryable=True)
        text = self.luck.choice(("They talked.", "They talked.", " ", "x" * 50_000))
        return ModelResponse(AssistantMessage(text=text), Usage(output_tokens=2))

    def _call(self, n: int) -> ToolCall:
        name, arguments = self.luck.choice(
            (
                ("write", '{"text": "a"}'),
                ("fetch", '{"size": 200}'),
                ("fetch", '{"size": 40000}'),
                ("read_result", '{"item": 3, "page": 1}'),
                ("nothing", "{}"),
                ("write", '{"text": '),
            )
        )
        return ToolCall(call_id=f"call_{self.asked}_{n}", name=name, arguments=arguments)


def valid_chat(request: ModelRequest) -> None:
    due: list[str] = []
    messages = [m for m in openai_chat.body(request, "p")["messages"] if m["role"] != "system"]
    assert messages[0]["role"] == "user"
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == due.pop(0)
        else:
            assert not due
            due = [call["id"] for call in message.get("tool_calls") or ()]
    assert not due


def valid_responses(request: ModelRequest) -> None:
    open_calls: set[str] = set()
    for entry in openai_responses.body(request, "p")["input"]:
        if entry["type"] == "function_call":
            open_calls.add(entry["call_id"])
        elif entry["type"] == "function_call_output":
            open_calls.remove(entry["call_id"])
        elif entry.get("role") == "user":
            assert not open_calls
    assert not open_calls


def valid_anthropic(request: ModelRequest) -> None:
    messages = anthropic_messages.body(request, "p")["messages"]
    roles = [message["role"] for message in messages]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)
    due: list[str] = []
    for message in messages:
        content = message["content"]
        assert content
        results = [b["tool_use_id"] for b in content if b["type"] == "tool_result"]
        assert results == due
        kinds = [block["type"] == "tool_result" for block in content]
        assert kinds == sorted(kinds, reverse=True)
        due = [block["id"] for block in content if block["type"] == "tool_use"]
    assert not due


class Storm:
    """One session's random life."""

    def __init__(self, b: Bench, seed: int) -> None:
        self.b = b
        self.luck = random.Random(seed)
        self.model = Erratic(self.luck)
        self.ids = 0
        how = Compaction(at_tokens=600, keep_tokens=200)
        agent = Agent("bot", model="main", tools=[write, fetch], compaction=how)
        self.app = App(agents=[agent], models={"main": self.model})
        self.before: list[Any] = []

    async def submit(self, op: Op, policy: str = "enqueue") -> None:
        self.ids += 1
        await self.b.stores.producer.submit(
            Submit(
                session_id=self.b.session,
                submission_id=f"x{self.ids}",
                digest=digest(op),
                cls=class_of(op).value,
                body=encode_op(op),
                create=Create(route=ROUTE, agent="bot"),
                policy=policy,
                event=Message(text=op.text) if isinstance(op, MessageOp) else None,
            )
        )

    async def act(self) -> None:
        roll = self.luck.random()
        if roll < 0.12:
            await self.submit(CompactOp())
        elif roll < 0.24:
            turns = (await self.b.turns())[-4:]
            to = self.luck.choice([*(turn.turn_id for turn in turns), "t_999"])
            await self.submit(RollbackOp(to=to))
        else:
            text = "say " * self.luck.randint(1, 60)
            policy = self.luck.choice(("enqueue", "enqueue", "rollback", "interrupt"))
            await self.submit(MessageOp(text=text), policy)
        await self.run()
        await self.look()

    async def run(self) -> None:
        """Run it to its end, or let its worker die, be interrupted or be drained at a moment."""
        while await self._is_ready():
            end = self.luck.choice(
                ("goes on", "goes on", "dies", "interrupted", "rolled", "drains")
            )
            await self._run_once(end, after=self.luck.randint(1, 12))

    async def _run_once(self, end: str, *, after: int) -> None:
        there, left = asyncio.Event(), after

        async def listener(moment: Moment, session_id: str, detail: str) -> None:
            nonlocal left
            left -= 1
            if left == 0 and end != "goes on":
                there.set()
                if end == "dies":
                    await asyncio.get_running_loop().create_future()
                await asyncio.sleep(0)

        signals.listen(listener)
        run, held = await self.b.begin(self.app, f"w:{self.luck.getrandbits(32):08x}")
        stopped = asyncio.create_task(there.wait())
        await asyncio.wait({run, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not run.done():
            await self._stop(end, run, held)
        signals.listen(None)
        result = None if run.cancelled() else await run
        assert result is None or result.how in ("released", "handed_off"), result

    async def _stop(self, end: str, run: Any, held: Any) -> None:
        if end == "dies":
            await self.b.die(run, held)
            return
        if end == "drains":
            held.drain() if self.luck.random() < 0.5 else held.drain_now()
        elif end == "rolled":
            await self.submit(MessageOp(text="no"), "rollback")
            await self._alert(held)
        else:
            await self.interrupt()
            await self._alert(held)
        await run

    async def interrupt(self) -> None:
        self.ids += 1
        op = InterruptOp()
        await self.b.stores.producer.submit(
            Submit(
                session_id=self.b.session,
                submission_id=f"x{self.ids}",
                digest=digest(op),
                cls="ctl",
                body=encode_op(op),
                create=Create(route="", agent=""),
                may_create=False,
            )
        )

    async def _alert(self, held: Any) -> None:
        head = await self.b.stores.worker.read_head(self.b.session)
        assert head is not None
        if head.ctl_turn:
            held.alert(head.ctl_epoch)

    async def _is_ready(self) -> bool:
        await self.b.stores.worker.reap(self.b.partition, [self.b.session])
        head = await self.b.stores.worker.read_head(self.b.session)
        assert head is not None
        assert head.status in ("idle", "ready"), head.status
        return head.status == "ready"

    async def look(self) -> None:
        """The transcript has only grown; one prefix is kept at most."""
        now = await self.b.transcript()
        assert now[: len(self.before)] == self.before
        assert [entry.n for entry in now] == list(range(1, len(now) + 1))
        self.before = now
        due: list[str] = []
        for entry in now:
            if isinstance(entry.item, ToolResult):
                assert due.pop(0) == entry.item.call_id
            elif isinstance(entry.item, AssistantMessage):
                due = [call.call_id for call in entry.item.tool_calls]
            else:
                assert isinstance(entry.item, UserMessage)
                assert not due
        prefixes = [key for key in await self.b.stores.dump() if ":context:" in key]
        assert len(prefixes) <= 1


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_happens_each_request_is_valid_and_the_transcript_only_grows(
    seed: int,
) -> None:
    async with bench() as b:
        storm = Storm(b, seed)
        for _ in range(ACTIONS):
            await storm.act()
        types = await b.types()
        codes = {event.code for event in await b.events() if isinstance(event, Warned)}
        assert "context_damaged" not in codes
        assert storm.model.asked > 10
        assert "context_compacted" in types or storm.model.summaries
        states = await b.stores.producer.submissions(
            [(b.session, f"x{n}") for n in range(1, storm.ids + 1)]
        )
        assert not [s for s in states if s is not None and s.ending is None]
