"""The three acts: a worker is killed, frozen or drained in mid-turn, and another one goes on."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from datetime import timedelta

from changeover._client import Client
from changeover.cli._demo._fleet import AGENT, DemoFleet, Worker
from changeover.cli._demo._relay import Relay
from changeover.cli._demo._story import Story
from changeover.cli._demo._verdict import CALLS, Facts
from changeover.cli._demo._watch import Watch, in_time, poll, watching
from changeover.cli._lines import call
from changeover_shared._events import (
    Event,
    StepStarted,
    ToolCallBegin,
    ToolCallEnd,
    TurnCompleted,
    TurnStarted,
    WorkerChanged,
)
from changeover_shared._results import SessionInfo
from changeover_shared._units import show_duration

QUESTION = "Are both regions healthy?"
CUT_AT = 20
"""After how many characters of a step's text its worker is struck."""


async def kill(fleet: DemoFleet, story: Story) -> Facts:
    """SIGKILL in the middle of the answer. Raises `DemoFailed`, as do the other acts."""
    fleet.stall(1)
    a = await _first_worker(fleet)
    async with watching(fleet.operator, fleet.session_id) as watch:
        b = await _second_worker(fleet, story, watch, a)
        await _tell_first_step(story, watch, a)
        story.worker(a, 1, f"step 1  {await watch.text(1, CUT_AT, fence=1)}")
        await fleet.ready(b)
        story.signal(f"kill -9 {a.pid}")
        struck = time.monotonic()
        a.process.kill()
        await fleet.bury(a)
        fleet.go_on()
        await watch.first(WorkerChanged, what="the takeover")
        _tell_takeover(story, b, time.monotonic() - struck)
        await _tell_answer(story, watch, b)
    return await _facts(fleet)


async def freeze(fleet: DemoFleet, story: Story) -> Facts:
    """SIGSTOP with a commit on the wire, which arrives when another worker holds the session."""
    async with Relay(fleet.target) as before_a, Relay(fleet.target) as before_b:
        try:
            return await _freeze(fleet, story, before_a, before_b)
        finally:
            # While the relays are there, so that the workers can say farewell.
            before_a.release()
            before_b.release()
            await fleet.end()


async def _freeze(fleet: DemoFleet, story: Story, before_a: Relay, before_b: Relay) -> Facts:
    fleet.stall(1)
    a = await _first_worker(fleet, before_a.url)
    async with watching(fleet.operator, fleet.session_id) as watch:
        b = await _second_worker(fleet, story, watch, a, before_b.url)
        await _tell_first_step(story, watch, a)
        story.worker(a, 1, f"step 1  {await watch.text(1, CUT_AT, fence=1)}")
        await fleet.ready(b)
        before_a.hold()
        before_b.hold()
        fleet.go_on()
        await in_time(before_a.caught(), "the commit of worker a")
        story.signal(f"kill -STOP {a.pid}: its commit of step 1 is on the wire, held back")
        struck = time.monotonic()
        a.process.send_signal(signal.SIGSTOP)
        await poll(lambda: _granted(fleet, b), "the grant to worker b")
        took = _span(time.monotonic() - struck)
        story.worker(b, 2, f"took over after {took}: the lease of {a.name} had run out")
        before_a.release()
        answer = await in_time(before_a.answer(), "Redis's answer to the late write")
        _tell_late_write(story, a, answer, fleet.session_id)
        before_b.release()
        a.process.send_signal(signal.SIGCONT)
        if answer == "LOST":
            await poll(lambda: _noticed(fleet, a), "worker a's notice of its loss")
            story.worker(a, 1, "woke up, saw its loss, and wrote nothing more")
            await _tell_answer(story, watch, b)
    return await _facts(fleet, late_answer=answer)


async def drain(fleet: DemoFleet, story: Story) -> Facts:
    """SIGTERM in the middle of a step: the worker ends the step and hands the session off."""
    fleet.stall(0)
    a = await _first_worker(fleet)
    async with watching(fleet.operator, fleet.session_id) as watch:
        b = await _second_worker(fleet, story, watch, a)
        story.worker(a, 1, f"step 0  {await watch.text(0, CUT_AT, fence=1)}")
        await fleet.ready(b)
        story.signal(f"kill -TERM {a.pid}: it ends its step and hands the session off")
        struck = time.monotonic()
        a.process.send_signal(signal.SIGTERM)
        await poll(lambda: _draining(fleet, a), "the drain of worker a")
        fleet.go_on()
        boundary = await _tell_first_step(story, watch, a)
        change = await watch.first(WorkerChanged, what="the hand-off")
        _tell_handoff(story, b, change.at_ms - boundary.at_ms)
        code = await in_time(a.process.wait(), "the end of worker a")
        took = _span(time.monotonic() - struck)
        story.worker(a, 1, f"drained and gone {took} after the signal, exit {code}")
        await _tell_answer(story, watch, b)
    return await _facts(fleet)


async def _first_worker(fleet: DemoFleet, url: str | None = None) -> Worker:
    """Start worker a and give it the session: nobody else is there to take it."""
    a = await fleet.start("a", url)
    await fleet.ready(a)
    await fleet.operator.submit(
        fleet.session_id, QUESTION, id=f"{fleet.session_id}:1", agent=AGENT, queue=fleet.queue
    )
    return a


async def _second_worker(
    fleet: DemoFleet, story: Story, watch: Watch, a: Worker, url: str | None = None
) -> Worker:
    await watch.first(TurnStarted, what="the turn")
    b = await fleet.start("b", url)
    story.opening(fleet.server, a, b)
    story.user(QUESTION)
    return b


async def _tell_first_step(story: Story, watch: Watch, a: Worker) -> Event:
    """Wait for both results and tell them; the event that made the second one durable."""
    ends = [
        await watch.first(ToolCallEnd, _is_of(f"call_{number}"), what=f"tool call {number}")
        for number in range(1, CALLS + 1)
    ]
    begun = [e for e in watch.events if isinstance(e, ToolCallBegin)]
    told = "   ".join(f"{call(e.name, e.arguments)} ok" for e in begun)
    last = max(ends, key=lambda e: e.seq)
    story.worker(a, 1, f"step 0  {told}", committed=last.seq)
    return last


def _is_of(call_id: str) -> Callable[[ToolCallEnd], bool]:
    return lambda end: end.call_id == call_id


def _tell_takeover(story: Story, b: Worker, took_s: float) -> None:
    story.worker(
        b,
        2,
        f"took over after {_span(took_s)}: step 0 kept, its {CALLS} results not run again; "
        "step 1 asked again",
    )


def _tell_handoff(story: Story, b: Worker, took_ms: int) -> None:
    story.worker(
        b,
        2,
        f"went on {_span(took_ms / 1000)} after the step boundary: step 0 kept, its {CALLS} "
        "results not run again",
    )


def _tell_late_write(story: Story, a: Worker, answer: str, session_id: str) -> None:
    if answer == "LOST":
        story.worker(a, 1, f"late write refused: fence 2 holds {session_id}")
    else:
        story.worker(a, 1, f"late write ANSWERED {answer}, although fence 2 holds {session_id}")


async def _tell_answer(story: Story, watch: Watch, b: Worker) -> None:
    await watch.first(
        StepStarted, lambda e: e.index == 1 and e.fence == 2, what="step 1 of worker b"
    )
    end = await watch.first(TurnCompleted, what="the answer")
    story.worker(b, 2, f"step 1  {end.text}", committed=end.seq)


async def _granted(fleet: DemoFleet, b: Worker) -> SessionInfo | None:
    info = await fleet.operator.session(fleet.session_id)
    return info if info.fence == 2 and info.worker == b.incarnation else None


async def _noticed(fleet: DemoFleet, a: Worker) -> bool | None:
    said = fleet.log_of(a)
    return "lease_lost" in said or "write_refused" in said or None


async def _draining(fleet: DemoFleet, a: Worker) -> bool | None:
    return await fleet.state_of(a) == "draining" or None


async def _facts(fleet: DemoFleet, late_answer: str | None = None) -> Facts:
    """Read everything back from Redis."""
    client, session_id = fleet.operator, fleet.session_id
    return Facts(
        info=await client.session(session_id),
        events=await _journal(client, session_id),
        transcript=(await client.transcript(session_id)).items,
        turns=(await client.turns(session_id)).items,
        runs=fleet.runs,
        late_answer=late_answer,
    )


async def _journal(client: Client, session_id: str) -> list[Event]:
    """The whole journal, oldest first."""
    events: list[Event] = []
    before: str | None = None
    while True:
        page = await client.events(session_id, before=before, limit=1000)
        events += page.items
        before = page.next
        if before is None:
            return events[::-1]


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else show_duration(timedelta(seconds=seconds))
