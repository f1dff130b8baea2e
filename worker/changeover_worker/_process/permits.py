"""Permits: at most so many sessions of one tenant, and of one queue, run at once in the fleet.

A permit is taken before the claim and outlives whatever lease the claim can lead to: the keeper
extends it before it renews the lease, and lets a lease run out whose permit it could not extend.
So what is counted is never less than what runs. What crashes leaves its permits to their end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from changeover_shared._settings import Settings
from changeover_shared._store.keys import queue_of
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.records import Caps, Lease, Permit
from changeover_shared._units import milliseconds

CLAIM_MS: Final = 5_000
"""How long a claim with a permit may be on its way."""
SLACK_MS: Final = 5_000
"""How far the clocks of two servers may be apart."""
AT_ONCE: Final = 1000
"""The most permits that one call extends."""
ASIDE_MS: Final = (1_000.0, 2_000.0)
"""For how long a session steps aside whose tenant or queue is at its limit."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """What may be claimed."""

    ids: tuple[str, ...]
    not_after_ms: int
    """A later grant could outlive its permit."""


class Permits:
    """What the sessions of one process are permitted, and for how long. From any thread."""

    def __init__(self, settings: Settings) -> None:
        self.caps = Caps(settings.tenant_concurrency, settings.queue_concurrency)
        self._ttl_ms = milliseconds(settings.lease)
        # The repeat of a claim may come one lease after the time for it, and grants one lease more.
        self._span_ms = CLAIM_MS + 2 * self._ttl_ms + SLACK_MS
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], tuple[Permit, float]] = {}
        self._aside_until = 0.0

    @property
    def keeps_aside(self) -> bool:
        """Whether something that got no permit here is not offered again yet."""
        return time.monotonic() < self._aside_until

    @property
    def needed(self) -> bool:
        """Whether anything is limited."""
        return self.caps != Caps()

    async def admit(
        self,
        store: LeaseStore,
        partition: int,
        route: str,
        ids: Sequence[str],
        *,
        nonce: str,
        uniform: Callable[[float, float], float],
    ) -> Admitted:
        """Take permits for what is to be claimed; what gets none steps aside for a while, so that
        the next ones are looked at. Raises `StoreUnavailable`."""
        limited = self.caps.tenant is not None
        tenants = await store.tenants(partition, ids) if limited else ("",) * len(ids)
        asked = [
            Permit(session_id, nonce, queue_of(route), tenant)
            for session_id, tenant in zip(ids, tenants, strict=True)
        ]
        asked_at = time.monotonic()
        answers = await store.permit(asked, self.caps, span_ms=self._span_ms)
        admitted: list[str] = []
        until_ms = 0
        for one, answer in zip(asked, answers, strict=True):
            if answer.full:
                span_ms = round(uniform(*ASIDE_MS))
                await store.defer(one.session_id, route, span_ms=span_ms, reason=answer.full)
                until = time.monotonic() + span_ms / 1000
                self._aside_until = max(self._aside_until, until)
            else:
                admitted.append(one.session_id)
                until_ms = answer.until_ms
                self._keep(one, asked_at)
        return Admitted(tuple(admitted), until_ms - 2 * self._ttl_ms - SLACK_MS)

    def tenant_of(self, lease: Lease) -> str | None:
        """The tenant for which a grant was permitted; None where none is limited."""
        with self._lock:
            found = self._kept.get((lease.session_id, lease.nonce))
        return None if found is None or self.caps.tenant is None else found[0].tenant

    def lasts(self, lease: Lease) -> bool:
        """Whether a lease may be renewed: its permit would outlive it, or it needs none."""
        with self._lock:
            found = self._kept.get((lease.session_id, lease.nonce))
        return found is None or found[1] >= time.monotonic() + (self._ttl_ms + SLACK_MS) / 1000

    async def extend(self, store: LeaseStore) -> None:
        """Ask for everything that is kept again. Raises `StoreUnavailable`."""
        with self._lock:
            asked = [permit for permit, _ in self._kept.values()]
        for start in range(0, len(asked), AT_ONCE):
            await self._extend(store, asked[start : start + AT_ONCE])

    async def _extend(self, store: LeaseStore, asked: Sequence[Permit]) -> None:
        asked_at = time.monotonic()
        answers = await store.permit(asked, self.caps, span_ms=self._span_ms)
        over: list[Permit] = []
        with self._lock:
            for one, answer in zip(asked, answers, strict=True):
                if (one.session_id, one.nonce) not in self._kept:
                    over.append(one)  # It was given back meanwhile, and is there again.
                elif not answer.full:
                    self._kept[one.session_id, one.nonce] = one, self._until(asked_at)
        await store.give_back(over, self.caps)

    async def give_back(self, store: LeaseStore, nonce: str, ids: Sequence[str]) -> None:
        """End the permits of what was not granted, or does not run any more."""
        with self._lock:
            found = [self._kept.pop((session_id, nonce), None) for session_id in ids]
        await store.give_back([one[0] for one in found if one is not None], self.caps)

    def forget(self, nonce: str, ids: Sequence[str]) -> None:
        """Extend these no more; if they are not given back they end by themselves."""
        with self._lock:
            for session_id in ids:
                self._kept.pop((session_id, nonce), None)

    def _keep(self, permit: Permit, asked_at: float) -> None:
        with self._lock:
            self._kept[permit.session_id, permit.nonce] = permit, self._until(asked_at)

    def _until(self, asked_at: float) -> float:
        return asked_at + self._span_ms / 1000
