"""What is counted of models and tools: a watcher of sessions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from changeover_worker._process.counted_log import TURNS
from changeover_worker._process.instruments import Instruments
from changeover_worker._session.watching import UNWATCHED, Asked, Called, SessionWatch


class SessionCounts:
    """Counts what is asked and run."""

    def __init__(self, made: Instruments) -> None:
        self._steps = made.counter(
            "steps_total", "How often a model was asked.", ("model", "ending")
        )
        self._model_seconds = made.histogram(
            "model_seconds", "How long a model took, whatever came of it.", ("model",), TURNS
        )
        self._tokens = made.counter(
            "tokens_total",
            "Tokens as the provider counted them; cached ones are part of the input.",
            ("model", "kind"),
        )
        self._first_text = made.histogram(
            "first_text_seconds",
            "From a turn's start to its first text, if one worker saw both.",
            ("agent",),
            TURNS,
        )
        self._calls = made.counter(
            "tool_calls_total", "Tool calls that were run.", ("tool", "ending")
        )
        self._tool_seconds = made.histogram(
            "tool_seconds", "How long a tool took.", ("tool",), TURNS
        )

    @contextmanager
    def asking(self, asked: Asked) -> Iterator[None]:
        """Count one question."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._count(asked, time.monotonic() - began)

    def _count(self, asked: Asked, seconds: float) -> None:
        if asked.ending == "limited":
            return
        self._model_seconds.labels(asked.model).observe(seconds)
        self._steps.labels(asked.model, asked.ending).inc()
        for kind, count in (
            ("input", asked.usage.input_tokens),
            ("output", asked.usage.output_tokens),
            ("cached_input", asked.usage.cached_input_tokens),
            ("reasoning", asked.usage.reasoning_tokens),
        ):
            if count:
                self._tokens.labels(asked.model, kind).inc(count)

    @contextmanager
    def calling(self, called: Called) -> Iterator[None]:
        """Count one call."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._tool_seconds.labels(called.tool).observe(time.monotonic() - began)
            self._calls.labels(called.tool, called.ending).inc()

    def first_text(self, agent: str, seconds: float) -> None:
        """Count the beginning of an answer."""
        self._first_text.labels(agent).observe(seconds)

    def session(self, session_id: str, agent: str, fence: int) -> SessionWatch:
        """Turns are counted by what the log says of them."""
        return UNWATCHED
