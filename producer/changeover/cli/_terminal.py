"""A screen that is drawn again and again, and keys that are read meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from changeover.cli._glances import Line, Size

Draw = Callable[[Size], Sequence[Line]]
"""The lines of a screen of a size."""


def is_live() -> bool:
    """Whether somebody looks at a terminal that can be drawn on."""
    console = Console(file=sys.stdout)
    return console.is_terminal and not console.is_dumb_terminal


@contextmanager
def drawn(draw: Draw, stop: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Take the whole terminal; calling what this gives draws it anew, as a new size does.

    `stop` is called when somebody presses q, or the process is told to end. Afterwards the terminal
    is as it was, however the block ends.
    """
    loop = asyncio.get_running_loop()
    live = Live(_Drawn(draw), screen=True, auto_refresh=False)
    with _keys(stop), live:
        refresh = live.refresh
        loop.add_signal_handler(signal.SIGWINCH, refresh)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop)
        try:
            yield refresh
        finally:
            for number in (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP):
                loop.remove_signal_handler(number)


class _Drawn:
    """What rich draws: as large as the terminal is at that moment."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = self._draw(Size(options.max_width, console.size.height))
        text = Text("\n").join(Text(line.text, style=line.style) for line in lines)
        text.no_wrap = True
        yield text


@contextmanager
def _keys(stop: Callable[[], None]) -> Iterator[None]:
    """Read single keys, without showing them; Ctrl-C stays what it is."""
    if not sys.stdin.isatty():
        yield
        return
    terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()

    def read() -> None:
        pressed = os.read(terminal, 64)
        if not pressed or b"q" in pressed.lower():
            stop()

    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    loop.add_reader(terminal, read)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
