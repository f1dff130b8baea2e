"""The deltas of one model step, on their way into its session's recorder."""

from __future__ import annotations

import weakref
from typing import Any

from changeover_shared._items import Usage
from changeover_worker._models.model import EmitRefused, ModelDelta, TextDelta, UsageDelta
from changeover_worker._session.admitted import Stream
from changeover_worker._session.recorder import Recorder
from changeover_worker._turn.draft import Tail


class StepRecorder:
    """Takes the deltas of one model step. After `close` it takes nothing more.

    A model may keep it: that keeps neither the recorder nor the session alive.
    """

    __slots__ = ("_recorder", "_stream", "_usage")

    def __init__(self, recorder: Recorder, stamp: dict[str, Any]) -> None:
        self._recorder = weakref.ref(recorder)
        self._stream = Stream(stamp)
        self._usage = Usage()

    @property
    def stamp(self) -> dict[str, Any]:
        """The step's ids, as its events carry them."""
        return self._stream.stamp

    async def emit(self, delta: ModelDelta) -> None:
        """Admit a delta; waits while too much is on its way.

        Returns when it is admitted, not when it is durable. Raises `EmitRefused` once the step
        has ended, `RecorderStopped` after a write that failed, and `TooLarge` or `Invalid` for a
        delta that could never be written.
        """
        stream, recorder = self._stream, self._recorder()
        if stream.closed or recorder is None:
            raise _refused()
        match delta:
            case TextDelta(text=text, phase=phase):
                if text and (cost := recorder.take_text(stream, text, phase)):
                    refuse = self._refuse_if_closed
                    await recorder.take_text_later(stream, text, phase, cost, refuse)
            case UsageDelta(usage=usage):
                self._usage = usage

    def stop(self) -> None:
        """Take nothing more from here on, and begin no further write."""
        recorder = self._recorder()
        if recorder is not None:
            recorder.close(self._stream)

    async def close(self) -> Tail:
        """End the step: late deltas are refused, and what is in flight gets its answer.

        Returns what was admitted and not written, and where the rest lies. Raises the first
        failure of a write, a `LeaseError` as a rule.
        """
        self.stop()
        recorder = self._recorder()
        events = [] if recorder is None else await recorder.take_back(self._stream)
        return Tail(events=tuple(events), seqs=tuple(self._stream.seqs), usage=self._usage)

    def _refuse_if_closed(self) -> None:
        if self._stream.closed:
            raise _refused()


def _refused() -> EmitRefused:
    return EmitRefused("the step has ended; the text was dropped; stop streaming")
