"""One tool call, from its JSON text to its result. Whatever a tool does, the worker lives on."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from structlog.typing import FilteringBoundLogger

from changeover_shared._errors import StopTurn, ToolError
from changeover_shared._items import Json, ToolCall, ToolResult, TurnStop
from changeover_shared._words import Effect
from changeover_worker._readable import error_text
from changeover_worker._stopping import stop
from changeover_worker._tools.context import StopSignal, ToolContext, ToolStopped
from changeover_worker._tools.exits import ToolExit, contain_exits, in_tool
from changeover_worker._tools.output import as_json
from changeover_worker._tools.threads import Threads
from changeover_worker._tools.tool import Tool


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a tool ended.

    A value, since asyncio hands `SystemExit` and `KeyboardInterrupt` of a task on to the loop.
    """

    output: Json = None
    error: BaseException | None = None


async def run_tool(
    tools: Mapping[str, Tool],
    call: ToolCall,
    ctx: ToolContext[Any],
    *,
    threads: Threads,
    log: FilteringBoundLogger,
) -> ToolResult:
    """Run one call and return its result; whatever goes wrong inside is an error result.

    Raises only `CancelledError`, when cancelled from outside, and `ToolStopped`, when the tool
    ended by `ctx.check()` after `ctx.stop` was set; then there is no result.
    """
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join(sorted(tools)) or "none"
        return _failure(call, f"there is no tool {call.name!r:.80}; the tools are: {known}")
    stopped = ctx.stop
    ctx = replace(ctx, stop=StopSignal(stopped))
    if tool.threaded:
        ended = await _in_thread(tool, call, ctx, threads)
    else:
        ended = await _inline(tool, call, ctx)
    log = log.bind(session=ctx.session_id, turn=ctx.turn_id, call=call.call_id, tool=tool.name)
    if ended is None:
        log.warning("tool_timed_out", seconds=tool.timeout.total_seconds())
        return _timed_out(tool, call)
    error = ended.error
    if error is None:
        return ToolResult(call_id=call.call_id, name=call.name, output=ended.output)
    if isinstance(error, ToolError):
        return _failure(call, said_by(error))
    if isinstance(error, StopTurn):
        return _failure(call, said_by(error)).model_copy(update={"stop": _stop(error)})
    if isinstance(error, ToolStopped) and stopped.reason is not None:
        raise error
    log.warning("tool_failed", exc_info=error)
    return _failure(call, told(error))


async def _inline(tool: Tool, call: ToolCall, ctx: ToolContext[Any]) -> _Ended | None:
    """Run on the loop; None when the time is over.

    In a task of its own, so that a tool that cancels itself, or ignores that it is cancelled,
    harms nobody else.
    """
    contain_exits(asyncio.get_running_loop())
    task = asyncio.create_task(_capture(tool, call, ctx), name=f"tool-{tool.name}")
    try:
        await asyncio.wait({task}, timeout=tool.timeout.total_seconds())
        if not task.done():
            return None
        return _Ended(error=asyncio.CancelledError()) if task.cancelled() else task.result()
    finally:
        ctx.stop.set("the call is over")
        if not task.done():
            await stop((task,))


async def _capture(tool: Tool, call: ToolCall, ctx: ToolContext[Any]) -> _Ended:
    in_tool()
    try:
        value = tool.bind(call.arguments, ctx)()
        if inspect.isawaitable(value):
            value = await value
        return _Ended(output=as_json(value))
    except BaseException as error:
        return _Ended(error=error)


async def _in_thread(
    tool: Tool, call: ToolCall, ctx: ToolContext[Any], threads: Threads
) -> _Ended | None:
    """Run in a thread, once there is one to spare; None when the time is over."""
    if not await threads.take():
        return _Ended(error=_no_thread(tool, threads))
    try:
        return await _in_own_thread(tool, call, ctx)
    finally:
        threads.give_back()


def _no_thread(tool: Tool, threads: Threads) -> ToolError:
    return ToolError(
        f"{tool.name} was not run: no thread became free within {threads.wait_s:g} s; "
        "it may be called again"
    )


async def _in_own_thread(tool: Tool, call: ToolCall, ctx: ToolContext[Any]) -> _Ended | None:
    """Each call has a thread of its own: a pool would be used up by tools that hang. It is a
    daemon, so that a tool that hangs does not keep the process from exiting."""
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[_Ended] = loop.create_future()

    def work() -> None:
        ended = _captured(tool, call, ctx)
        with contextlib.suppress(RuntimeError):  # nobody waits any more: the loop is closed
            loop.call_soon_threadsafe(ending.set_result, ended)

    try:
        target = contextvars.copy_context().run
        threading.Thread(target=target, args=(work,), name=f"tool-{tool.name}", daemon=True).start()
        await asyncio.wait({ending}, timeout=tool.timeout.total_seconds())
        return ending.result() if ending.done() else None
    except RuntimeError as error:  # no thread could be started
        return _Ended(error=error)
    finally:
        ctx.stop.set("the call is over")


def _captured(tool: Tool, call: ToolCall, ctx: ToolContext[Any]) -> _Ended:
    try:
        return _Ended(output=as_json(tool.bind(call.arguments, ctx)()))
    except BaseException as error:
        return _Ended(error=error)


def _timed_out(tool: Tool, call: ToolCall) -> ToolResult:
    unknown = tool.effect is Effect.ONCE
    text = f"{tool.name} did not end within {tool.timeout.total_seconds():g} s"
    if unknown:
        text += "; outcome unknown"
    if tool.threaded:
        text += "; its thread cannot be stopped and may still run"
    return _failure(call, text, unknown=unknown)


def _failure(call: ToolCall, text: str, *, unknown: bool = False) -> ToolResult:
    return ToolResult(
        call_id=call.call_id,
        name=call.name,
        output=error_text(text),
        is_error=True,
        unknown=unknown,
    )


def _stop(error: StopTurn) -> TurnStop:
    # An application's own kind of stop may not hold what it should.
    kind, message = getattr(error, "kind", StopTurn.code), getattr(error, "message", error)
    return TurnStop(kind=error_text(said_by(kind)), message=error_text(said_by(message)))


def said_by(value: object) -> str:
    """An object of the application as text; one that cannot say what it is has none."""
    try:
        return str(value)
    except Exception:
        return ""


def told(error: BaseException, what: str = "the tool") -> str:
    """What is said of an exception that `what` raised: never a traceback."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    kind = type(error).__name__
    if isinstance(error, SystemExit | KeyboardInterrupt | ToolExit):
        return f"{kind}: {what} tried to end the worker, which goes on"
    if isinstance(error, asyncio.CancelledError):
        return f"{kind}: {what} was cancelled from within"
    message = said_by(error)
    return f"{kind}: {message}" if message else kind
