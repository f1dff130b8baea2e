"""What one worker answers to probes and scrapes, from any thread."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from changeover_worker._process.instruments import CONTENT_TYPE
from changeover_worker._process.liveness import Verdict
from changeover_worker._process.meters import Meters
from changeover_worker._process.probes import Answer, Routes, said


@dataclass(frozen=True, slots=True)
class Reports:
    """Where the answers come from; each is called for every request."""

    live: Callable[[], Verdict]
    unready: Callable[[], str]
    """Why the worker is not ready; '' when it is."""
    status: Callable[[], dict[str, Any]]
    meters: Meters

    def routes(self) -> Routes:
        """What is answered to which path."""
        return {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/status": self._status,
            "/metrics": self._metrics,
        }

    async def _livez(self) -> Answer:
        verdict = self.live()
        return said(verdict.live, verdict.reason or "live")

    async def _readyz(self) -> Answer:
        why = self._why_unready()
        return said(not why, why or "ready")

    async def _status(self) -> Answer:
        verdict = self.live()
        judged = {"live": verdict.live, "ready": not (why := self._why_unready())}
        reasons = [reason for reason in (verdict.reason, why) if reason]
        body = json.dumps({**self.status(), **judged, "reasons": list(dict.fromkeys(reasons))})
        return Answer(200, body.encode() + b"\n", "application/json")

    async def _metrics(self) -> Answer:
        return Answer(200, self.meters.page(), CONTENT_TYPE)

    def _why_unready(self) -> str:
        """What is not live is not ready either."""
        return self.live().reason or self.unready()
