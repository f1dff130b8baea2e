"""Tasks that a tool starts: none of them may end the worker.

asyncio raises `SystemExit` and `KeyboardInterrupt` of any task out of the running loop. A tool's
own task never lets them through; those that the tool starts, with `gather` or a task group, are
wrapped as they are made, which only a task factory can do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

_in_tool: ContextVar[bool] = ContextVar("changeover_in_tool", default=False)


class ToolExit(Exception):
    """A task of a tool tried to end the process."""


def contain_exits(loop: asyncio.AbstractEventLoop) -> None:
    """Let tasks that tools start fail with `ToolExit` instead of ending the loop.

    A loop that has a task factory already is left as it is.
    """
    if loop.get_task_factory() is None:
        loop.set_task_factory(_make_task)


def in_tool() -> None:
    """Say that the current task, and those that it starts, run a tool."""
    _in_tool.set(True)


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
    **options: Any,
) -> asyncio.Task[T]:
    if _in_tool.get() and asyncio.iscoroutine(coro):
        coro = _Contained(coro)
    return asyncio.Task(coro, loop=loop, **options)


class _Contained(Coroutine[Any, Any, T]):
    """A coroutine whose exits are errors.

    It hands everything on instead of awaiting, so that a task that is cancelled before its first
    step still closes the coroutine inside.
    """

    def __init__(self, inner: Coroutine[Any, Any, T]) -> None:
        self._inner = inner
        self.__name__ = getattr(inner, "__name__", type(inner).__name__)
        self.__qualname__ = getattr(inner, "__qualname__", self.__name__)

    def send(self, value: Any, /) -> Any:
        try:
            return self._inner.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise ToolExit(type(error).__name__) from error

    def throw(self, *error: Any) -> Any:
        try:
            return self._inner.throw(*error)
        except (SystemExit, KeyboardInterrupt) as error:
            raise ToolExit(type(error).__name__) from error

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inner.__await__()
