"""Files of payload keys, and processes that have some of them."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any, Final

from changeover_shared._settings import Settings
from changeover_shared._store.fleet import Fleet
from changeover_shared._store.lease_store import LeaseStore
from changeover_shared._store.store import Store
from tests.support.fleet import Stores, small_settings

NAMES: Final = ("old", "new", "other")


class KeyFiles:
    """Files of three keys in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for number, name in enumerate(NAMES):
            (directory / name).write_bytes(b64encode(bytes([number]) * 32))

    def named(self, *names: str) -> str:
        """The setting of a process that has these keys; it encrypts with the first."""
        return ",".join(str(self._directory / name) for name in names)

    def settings(self, *names: str, **given: Any) -> Settings:
        """Its settings, of a small fleet."""
        return small_settings(payload_keys=self.named(*names), **given)


async def joined(stores: Stores, settings: Settings) -> Stores:
    """Both sides of the store as another process of the fleet has them."""
    fleet = await Fleet.join(stores.executor, settings)
    return Stores(Store(fleet), LeaseStore(fleet), stores.executor)
