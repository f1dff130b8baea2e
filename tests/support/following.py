"""A follower that writes down what it was told, and what is wrong with it."""

from __future__ import annotations

import asyncio

from changeover import Client
from changeover_shared._errors import StoreUnavailable
from changeover_shared._events import Event, Gap
from changeover_shared._settings import Settings
from changeover_shared._store.store import Store
from changeover_worker.testing._promises import removed


class Seen:
    """What a follower was told, in the order in which it was."""

    def __init__(self) -> None:
        self.last = 0
        self.told: list[str] = []
        """Each gap that it was told of."""
        self._events: list[Event] = []
        self._missing: set[int] = set()
        self._again: list[int] = []

    def note(self, event: Event) -> None:
        """One more."""
        if isinstance(event, Gap):
            self.told.append(f"{event.first}..{event.last} {event.reason}")
        else:
            self._events.append(event)
            self._missing |= set(range(self.last + 1, event.seq))
            if event.seq <= self.last:
                self._again.append(event.seq)
        self.last = event.seq

    def found(self) -> list[str]:
        """What is wrong: numbers that came again or never, though no gap was told."""
        missing = sorted(self._missing - removed(self._events))
        return [
            *([f"a follower never saw {missing}"] if missing else []),
            *([f"a follower saw {self._again} again"] if self._again else []),
        ]


class Following:
    """Follows one session from its start until it is closed, whatever happens to the server."""

    def __init__(self, url: str, settings: Settings, session: str) -> None:
        self._url = url
        self._settings = settings
        self._session = session
        self._seen = Seen()
        self._task = asyncio.create_task(self._follow())

    @property
    def told(self) -> list[str]:
        """Each gap that it was told of."""
        return [f"{self._session}: {gap}" for gap in self._seen.told]

    def found(self) -> list[str]:
        """What is wrong with what it was told."""
        return [f"{self._session}: {text}" for text in self._seen.found()]

    async def caught_up(self, store: Store, within_s: float) -> str:
        """Wait until it has seen all that there is; what is wrong if that never happens."""
        pulse = await store.pulse(self._session)
        end = pulse.seq if pulse else 0
        try:
            async with asyncio.timeout(within_s):
                while self._seen.last < end:
                    if self._task.done():
                        self._task.result()
                        return f"{self._session}: a follower ended by itself at {self._seen.last}"
                    await asyncio.sleep(0.05)
        except TimeoutError:
            return f"{self._session}: a follower is at {self._seen.last} of {end}"
        return ""

    async def aclose(self) -> None:
        """Follow no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        # Until its first event a follower is told of an outage; later it rides it out.
        while not self._seen.last:
            try:
                async with Client(self._url, settings=self._settings) as client:
                    async for event in client.follow(self._session, after=self._seen.last):
                        self._seen.note(event)
            except StoreUnavailable:
                await asyncio.sleep(0.1)
