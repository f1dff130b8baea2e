"""`run_tool`: whatever a tool does, its call has a result and the worker lives on."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pytest
import structlog
import uvloop
from pydantic import AfterValidator, BaseModel, RootModel
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from changeover_shared._checkpoint import (
    Checkpoint,
    Execution,
    PendingCall,
    decode_checkpoint,
    encode_checkpoint,
)
from changeover_shared._errors import ToolError
from changeover_shared._items import Json, ToolCall, ToolResult, decode_item, encode_item
from changeover_shared._words import Effect
from changeover_worker import _stopping
from changeover_worker._readable import MAX_DEPTH, MAX_ERROR
from changeover_worker._tools.context import StopSignal, ToolContext, ToolStopped
from changeover_worker._tools.output import MAX_BYTES
from changeover_worker._tools.runner import run_tool
from changeover_worker._tools.threads import Threads
from changeover_worker._tools.tool import Isolation, Tool, tool

BOTH: tuple[Isolation, ...] = ("inline", "thread")


def recording(seen: LogCapture) -> FilteringBoundLogger:
    log: FilteringBoundLogger = structlog.wrap_logger(
        None, processors=[seen], wrapper_class=structlog.make_filtering_bound_logger(0)
    )
    return log


def context(stop: StopSignal | None = None) -> ToolContext[Any]:
    return ToolContext(
        session_id="telegram:42",
        turn_id="t_3",
        call_id="call_1",
        fence=7,
        resources={"db": "db"},
        stop=stop or StopSignal(),
    )


async def result_of(
    made: Tool,
    arguments: Mapping[str, Any] | None = None,
    *,
    stop: StopSignal | None = None,
    seen: LogCapture | None = None,
    threads: Threads | None = None,
) -> ToolResult:
    call = ToolCall(call_id="call_1", name=made.name, arguments=json.dumps(arguments or {}))
    log = recording(seen or LogCapture())
    result = await run_tool(
        {made.name: made}, call, context(stop), threads=threads or Threads(), log=log
    )
    assert (result.call_id, result.name) == ("call_1", made.name)
    assert decode_item(encode_item(result)) == result
    return result


async def returned(value: Any) -> ToolResult:
    @tool
    async def give() -> Any:
        return value

    return await result_of(give)


async def raised(
    error: BaseException, isolation: Isolation = "inline", seen: LogCapture | None = None
) -> ToolResult:
    @tool(isolation=isolation)
    def fail() -> None:
        raise error

    return await result_of(fail, seen=seen)


async def test_an_async_tool_runs_on_the_loop_with_its_arguments_and_context() -> None:
    @tool
    async def where(ctx: ToolContext[dict[str, str]], city: str) -> list[Any]:
        await asyncio.sleep(0)
        return [city, ctx.resources["db"], threading.current_thread() is threading.main_thread()]

    result = await result_of(where, {"city": "Bern"})
    assert result == ToolResult(call_id="call_1", name="where", output=["Bern", "db", True])


async def test_a_def_tool_runs_in_a_thread_and_sees_the_context_variables() -> None:
    trace: ContextVar[str] = ContextVar("trace")
    trace.set("abc")

    @tool
    def where() -> list[Any]:
        return [trace.get(), threading.current_thread() is threading.main_thread()]

    assert (await result_of(where)).output == ["abc", False]


async def test_an_unknown_tool_is_told_with_the_known_ones() -> None:
    call = ToolCall(call_id="c", name="refund", arguments="{}")
    look, find = (tool(name=name)(lambda: None) for name in ("look", "find"))
    result = await run_tool(
        {"look": look, "find": find},
        call,
        context(),
        threads=Threads(),
        log=recording(LogCapture()),
    )
    assert result.is_error
    assert result.output == "there is no tool 'refund'; the tools are: find, look"
    assert (
        await run_tool({}, call, context(), threads=Threads(), log=recording(LogCapture()))
    ).output == ("there is no tool 'refund'; the tools are: none")


@pytest.mark.parametrize("isolation", BOTH)
async def test_a_tool_is_not_run_with_wrong_arguments(isolation: Isolation) -> None:
    ran: list[int] = []
    note = tool(name="note", isolation=isolation)(_appender(ran))
    for arguments in ("{", '{"x": "many"}', '{"x": 1, "y": 2}', "{}"):
        call = ToolCall(call_id="c", name="note", arguments=arguments)
        result = await run_tool(
            {"note": note}, call, context(), threads=Threads(), log=recording(LogCapture())
        )
        assert result.is_error
        assert "the tool was not run" in str(result.output)
    assert ran == []


def _appender(ran: list[int]) -> Callable[[int], None]:
    def note(x: int) -> None:
        ran.append(x)

    return note


@pytest.mark.parametrize("isolation", BOTH)
async def test_a_tool_error_is_told_to_the_model_and_is_no_warning(isolation: Isolation) -> None:
    seen = LogCapture()
    result = await raised(ToolError("no such order; ask for its number"), isolation, seen)
    assert result.output == "no such order; ask for its number"
    assert result.is_error
    assert seen.entries == []


@pytest.mark.parametrize("isolation", BOTH)
async def test_an_exception_is_told_without_its_traceback_and_logged_with_it(
    isolation: Isolation,
) -> None:
    error, seen = LookupError("no row 7"), LogCapture()
    result = await raised(error, isolation, seen)
    assert result.output == "LookupError: no row 7"
    assert result.is_error
    assert not result.unknown
    assert seen.entries == [
        {
            "event": "tool_failed",
            "log_level": "warning",
            "session": "telegram:42",
            "turn": "t_3",
            "call": "call_1",
            "tool": "fail",
            "exc_info": error,
        }
    ]
    assert error.__traceback__ is not None


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError(), "ValueError"),
        (Mute(), "Mute"),
        (StopIteration(3), "StopIteration: 3"),
        (GeneratorExit(), "GeneratorExit"),
        (ToolStopped("of my own"), "ToolStopped: of my own"),
        (asyncio.CancelledError(), "CancelledError: the tool was cancelled from within"),
        (TimeoutError("inner"), "TimeoutError: inner"),
        (ValueError("a\ud800b"), "ValueError: a\ufffdb"),
    ],
)
@pytest.mark.parametrize("isolation", BOTH)
async def test_every_exception_ends_as_an_error_result(
    error: BaseException, text: str, isolation: Isolation
) -> None:
    result = await raised(error, isolation)
    assert result.output == text
    assert result.is_error


async def test_the_text_of_an_error_is_bounded() -> None:
    for error in (ValueError("x" * 10**6), ToolError("x" * 10**6)):
        assert len(str((await raised(error)).output)) == MAX_ERROR


@pytest.mark.parametrize("isolation", BOTH)
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_tool_that_ends_the_process_does_not_end_the_worker(
    isolation: Isolation, loop: Callable[[], asyncio.AbstractEventLoop], error: BaseException
) -> None:
    """On a loop of its own: asyncio raises these two out of `run_forever` if a task lets them."""

    async def work() -> list[Json]:
        other = asyncio.create_task(asyncio.sleep(0, "alive"))
        return [(await raised(error, isolation)).output, await other]

    with asyncio.Runner(loop_factory=loop) as runner:
        output = runner.run(work())
    name = type(error).__name__
    assert output == [f"{name}: the tool tried to end the worker, which goes on", "alive"]


async def _leave() -> None:
    sys.exit(3)


async def _gather() -> None:
    await asyncio.gather(_leave(), asyncio.sleep(0))


async def _group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_leave(), name="leaver")


async def _forget() -> None:
    task = asyncio.create_task(_leave())
    await asyncio.wait({task})
    task.result()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("function", [_gather, _group, _forget])
def test_a_task_of_a_tool_that_ends_the_process_does_not_end_the_worker(
    function: Callable[[], Any], loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def work() -> list[Json]:
        result = await result_of(tool(name="spread")(function))
        return [result.output, await asyncio.create_task(asyncio.sleep(0, "alive"))]

    with asyncio.Runner(loop_factory=loop) as runner:
        output = runner.run(work())
    assert output == ["ToolExit: the tool tried to end the worker, which goes on", "alive"]


async def test_tasks_of_a_tool_are_cancelled_and_named_as_ever() -> None:
    """Also before their first step: a coroutine that is never awaited is a warning."""

    @tool
    async def spread() -> list[Any]:
        early = asyncio.create_task(_forget())
        early.cancel()
        late = asyncio.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        late.cancel()
        await asyncio.wait({early, late})
        return [early.cancelled(), late.cancelled(), "coro=<_forget()" in repr(early)]

    assert (await result_of(spread)).output == [True, True, True]


async def test_an_exception_in_a_group_of_one_is_told_as_itself() -> None:
    result = await raised(ExceptionGroup("tasks", [ExceptionGroup("tasks", [LookupError("x")])]))
    assert result.output == "LookupError: x"


async def test_sys_exit_after_an_await_does_not_end_the_worker() -> None:
    @tool
    async def leave() -> None:
        await asyncio.sleep(0)
        sys.exit("bye")

    assert "SystemExit" in str((await result_of(leave)).output)


async def test_a_tool_that_cancels_its_own_task_hurts_nobody_else() -> None:
    @tool
    async def foolish() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "done"

    @tool
    async def more_foolish() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    for made in (foolish, more_foolish):
        result = await result_of(made)
        assert result.output == "CancelledError: the tool was cancelled from within"
    await asyncio.sleep(0)


async def test_a_validator_that_raises_is_an_error_result() -> None:
    def leave(value: int) -> int:
        sys.exit(value)

    @tool
    async def odd(x: Annotated[int, AfterValidator(leave)]) -> None: ...

    assert "SystemExit" in str((await result_of(odd, {"x": 3})).output)


@pytest.mark.parametrize(
    ("effect", "unknown", "text"),
    [
        ("once", True, "hang did not end within 0.02 s; outcome unknown"),
        ("pure", False, "hang did not end within 0.02 s"),
        ("idempotent", False, "hang did not end within 0.02 s"),
    ],
)
async def test_an_async_tool_that_hangs_is_cancelled_at_its_time_out(
    effect: Any, unknown: bool, text: str
) -> None:
    cleaned: list[str | None] = []

    @tool(effect=effect, timeout="20ms")
    async def hang(ctx: ToolContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(ctx.stop.reason)

    seen = LogCapture()
    result = await result_of(hang, seen=seen)
    assert (result.output, result.is_error, result.unknown) == (text, True, unknown)
    assert cleaned == ["the call is over"]
    assert [log["event"] for log in seen.entries] == ["tool_timed_out"]


async def test_an_async_tool_that_ignores_its_cancellation_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_stopping, "CLEAN_UP_S", 0.02)
    release = asyncio.Event()
    ended = asyncio.Event()

    @tool(timeout="20ms")
    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        ended.set()

    result = await result_of(stubborn)
    assert result.unknown
    assert not ended.is_set()
    release.set()
    await ended.wait()


async def test_a_def_tool_that_hangs_ends_as_unknown_and_learns_that_its_time_is_over() -> None:
    release, stopped = threading.Event(), threading.Event()

    @tool(timeout="20ms")
    def hang(ctx: ToolContext) -> None:
        release.wait()
        try:
            ctx.check()
        except ToolStopped:
            stopped.set()
            raise

    result = await result_of(hang)
    assert result.unknown
    assert result.output == (
        "hang did not end within 0.02 s; outcome unknown; "
        "its thread cannot be stopped and may still run"
    )
    release.set()
    assert await asyncio.to_thread(stopped.wait, 10)


async def test_def_tools_that_hang_do_not_starve_the_others() -> None:
    release = threading.Event()

    @tool(timeout="20ms")
    def hang() -> None:
        release.wait()

    @tool
    def quick() -> str:
        return "done"

    hung = await asyncio.gather(*(result_of(hang) for _ in range(100)))
    assert all(result.unknown for result in hung)
    assert (await result_of(quick)).output == "done"
    release.set()


def test_a_def_tool_that_hangs_does_not_keep_the_process_from_exiting(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, structlog, threading\n"
        "from changeover_shared._items import ToolCall\n"
        "from changeover_worker._tools.tool import tool\n"
        "from changeover_worker._tools.context import ToolContext\n"
        "from changeover_worker._tools.runner import run_tool\n"
        "from changeover_worker._tools.threads import Threads\n"
        "@tool(timeout='20ms')\n"
        "def hang() -> None:\n"
        "    threading.Event().wait()\n"
        "ctx = ToolContext(session_id='s', turn_id='t', call_id='c', fence=1, resources=None)\n"
        "call = ToolCall(call_id='c', name='hang', arguments='')\n"
        "log = structlog.wrap_logger(structlog.ReturnLogger(), processors=[])\n"
        "run = run_tool({'hang': hang}, call, ctx, threads=Threads(), log=log)\n"
        "print(asyncio.run(run).unknown)\n"
    )
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=60, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "True"
    assert done.stderr == ""


async def test_no_thread_to_be_had_is_an_error_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    @tool
    def quick() -> None: ...

    monkeypatch.setattr(threading.Thread, "start", refuse)
    result = await result_of(quick)
    assert result.output == "RuntimeError: can't start new thread"


async def test_cancelling_the_call_cancels_an_async_tool_and_waits_for_its_clean_up() -> None:
    started, seen = asyncio.Event(), []

    @tool
    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            seen.append("clean")

    running = asyncio.create_task(result_of(hang))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert seen == ["clean"]


async def test_cancelling_the_call_lets_a_def_tool_know() -> None:
    started, go, stopped = threading.Event(), threading.Event(), threading.Event()

    @tool
    def hang(ctx: ToolContext) -> None:
        started.set()
        go.wait()
        try:
            ctx.check()
        except ToolStopped:
            stopped.set()

    running = asyncio.create_task(result_of(hang))
    assert await asyncio.to_thread(started.wait, 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    go.set()
    assert await asyncio.to_thread(stopped.wait, 10)


@pytest.mark.parametrize("isolation", BOTH)
async def test_a_stopped_tool_has_no_result(isolation: Isolation) -> None:
    stop = StopSignal()
    stop.set("the lease is lost")

    @tool(isolation=isolation)
    def careful(ctx: ToolContext) -> str:
        try:
            ctx.check()
        except Exception:
            return "swallowed"
        return "went on"

    with pytest.raises(ToolStopped, match="the lease is lost"):
        await result_of(careful, stop=stop)


async def test_the_end_of_one_call_stops_no_other() -> None:
    @tool
    def quick() -> None: ...

    stop = StopSignal()
    await result_of(quick, stop=stop)
    assert stop.reason is None


@dataclass
class Point:
    x: float
    at: datetime


class Order(BaseModel):
    number: int
    total: float


@pytest.mark.parametrize(
    ("value", "output"),
    [
        (None, None),
        ("text", "text"),
        (Order(number=7, total=1.5), {"number": 7, "total": 1.5}),
        (
            Point(x=math.inf, at=datetime(2031, 2, 3, tzinfo=UTC)),
            {"x": "Infinity", "at": "2031-02-03T00:00:00Z"},
        ),
        (b"bytes", "bytes"),
        ({1: (2, 3), "path": Path("/srv")}, {"1": [2, 3], "path": "/srv"}),
        ([math.nan, -math.inf], ["NaN", "-Infinity"]),
        (Effect.PURE, "pure"),
        ("one \ud800 alone", "one \ufffd alone"),
        (["\ud83d\ude00", {"\udc00": ("\udfff",)}], ["😀", {"\ufffd": ["\ufffd"]}]),
        (2**200, 2**200),
    ],
)
async def test_what_pydantic_can_turn_into_json_is_the_result(value: Any, output: Json) -> None:
    result = await returned(value)
    assert not result.is_error
    assert result.output == output


class Huge(RootModel[int]):
    """More digits than Python turns into text."""

    root: int = 10**5000


def circle() -> list[Any]:
    around: list[Any] = []
    around.append(around)
    return around


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "a object that JSON cannot hold: Unable to serialize unknown type"),
        ({"client": threading.Lock()}, "unknown type: <class '_thread.lock'>"),
        (b"\xff\x00", "a bytes that JSON cannot hold: invalid utf-8"),
        (circle(), "Circular reference"),
        ([*circle(), "\ud800"], "JSON cannot hold"),
        (nested(MAX_DEPTH + 1), f"it nests deeper than {MAX_DEPTH} levels"),
        (nested(100_000), "JSON cannot hold"),
        (Huge(), "a Huge that JSON cannot hold"),
    ],
)
async def test_what_json_cannot_hold_is_an_error_that_names_it(value: Any, said: str) -> None:
    result = await returned(value)
    assert result.is_error
    assert said in str(result.output)


async def test_a_result_over_the_limit_is_an_error_that_names_its_size() -> None:
    assert not (await returned("x" * (MAX_BYTES - 2))).is_error
    result = await returned("x" * (MAX_BYTES - 1))
    assert result.is_error
    assert f"is {MAX_BYTES + 1} bytes of JSON, the limit is {MAX_BYTES}" in str(result.output)


async def test_the_deepest_result_still_fits_into_a_checkpoint() -> None:
    result = await returned(nested(MAX_DEPTH))
    pending = PendingCall(call_id="c", name="give", arguments="", effect=Effect.ONCE, result=result)
    execution = Execution(
        turn_id="t_1", submission_ids=("s",), started_at_ms=0, phase="tools", calls=(pending,)
    )
    checkpoint = Checkpoint(session_id="s", execution=execution)
    assert decode_checkpoint(encode_checkpoint(checkpoint), session_id="s") == checkpoint


async def test_no_more_threads_run_than_there_are_places_and_every_call_has_its_turn() -> None:
    running, most, ended = 0, 0, 0
    lock = threading.Lock()
    full, go = threading.Event(), threading.Event()

    @tool
    def work() -> None:
        nonlocal running, most, ended
        with lock:
            running += 1
            most = max(most, running)
            if running == 3:
                full.set()
        go.wait(10)
        with lock:
            running -= 1
            ended += 1

    threads = Threads(limit=3)
    calls = [asyncio.create_task(result_of(work, threads=threads)) for _ in range(20)]
    assert await asyncio.to_thread(full.wait, 10)
    go.set()
    results = await asyncio.gather(*calls)
    assert (most, ended) == (3, 20)
    assert not any(result.is_error for result in results)


async def test_a_tool_that_hangs_gives_its_place_back_and_who_waited_has_its_whole_time() -> None:
    hangs, may_end = threading.Event(), threading.Event()

    @tool(timeout="300ms")
    def work(hang: bool) -> str:
        if hang:
            hangs.set()
            may_end.wait(10)
        return "done"

    threads = Threads(limit=1)
    first = asyncio.create_task(result_of(work, {"hang": True}, threads=threads))
    assert await asyncio.to_thread(hangs.wait, 10)
    second = asyncio.create_task(result_of(work, {"hang": False}, threads=threads))
    # It waits for as long as the first may run: were that its own time, it would be over as well.
    assert "did not end within" in str((await first).output)
    assert (await second).output == "done"
    may_end.set()


async def test_a_call_that_gets_no_thread_in_time_is_refused_and_was_not_run() -> None:
    runs: list[int] = []
    began, go = threading.Event(), threading.Event()

    @tool
    def work() -> None:
        runs.append(1)
        began.set()
        go.wait(10)

    threads = Threads(limit=1, wait_s=0.01)
    first = asyncio.create_task(result_of(work, threads=threads))
    assert await asyncio.to_thread(began.wait, 10)
    second = await result_of(work, threads=threads)
    assert (second.is_error, second.unknown) == (True, False)
    assert "was not run: no thread became free within 0.01 s" in str(second.output)
    go.set()
    assert not (await first).is_error
    assert runs == [1]


async def test_a_call_that_is_stopped_while_it_waits_for_a_thread_is_not_run() -> None:
    runs: list[int] = []
    began, go = threading.Event(), threading.Event()

    @tool
    def work() -> None:
        runs.append(1)
        began.set()
        go.wait(10)

    threads = Threads(limit=1)
    first = asyncio.create_task(result_of(work, threads=threads))
    assert await asyncio.to_thread(began.wait, 10)
    second = asyncio.create_task(result_of(work, threads=threads))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait({second})
    go.set()
    assert not (await first).is_error
    assert not (await result_of(work, threads=threads)).is_error
    assert (second.cancelled(), runs) == (True, [1, 1])
