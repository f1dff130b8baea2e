# Written by tools/generate_sync.py from agent_policies.py: change that file instead.
"""What agents want of messages that name no policy: written by workers, read by producers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from changeover_shared._errors import StoreUnavailable
from changeover_shared._policies import Wish, defaults_of
from changeover_shared._store import decode
from changeover_shared._store.sync_fleet import SyncFleet

KNOWN_S: Final = 10.0
"""How long a producer goes by what it has read."""


class SyncAgentPolicies:
    """The agents of a fleet as one producer knows them."""

    def __init__(self, fleet: SyncFleet) -> None:
        self._fleet = fleet
        self.known: Mapping[str, Wish] = {}
        """What was read last."""
        self._was_read = False
        self._until = 0.0

    def read(self) -> Mapping[str, Wish]:
        """Agent -> what it wants; those that want nothing particular are left out.

        At most ten seconds old, and older while the server does not answer that has it. Raises
        `StoreUnavailable` if it was never read.
        """
        if time.monotonic() >= self._until:
            try:
                flat = self._fleet.executor.command("HGETALL", self._fleet.keys.agents)
            except StoreUnavailable:
                if not self._was_read:
                    raise
            else:
                self.known = defaults_of(decode.agent_policies(flat))
                self._was_read = True
            self._until = time.monotonic() + KNOWN_S
        return self.known
