# Written by tools/generate_sync.py from fsync.py: change that file instead.
"""Whether, and how, a server says when its disk has what was written."""

from __future__ import annotations

from redis.exceptions import ResponseError

from changeover_shared._errors import ServerUnfit
from changeover_shared._store.sync_executor import SyncExecutor


def fsyncs_each_write(executor: SyncExecutor) -> bool:
    """Whether the servers answer only once their disks have a write (`appendfsync always`), so that
    nothing needs to be waited for; False when WAITAOF must be asked.

    Raises `ServerUnfit` where neither can be had.
    """
    try:
        executor.on_every_primary("WAITAOF", 1, 0, 1)
    except (ResponseError, ServerUnfit) as error:
        if _always(executor):
            return True
        finding = (
            f"it cannot say when its disk has a write ({_said(error)}); durability fsync needs "
            "appendonly yes, and WAITAOF (Redis 7.2, Valkey) or appendfsync always"
        )
        raise ServerUnfit([finding]) from error
    return False


def _always(executor: SyncExecutor) -> bool:
    found: set[str] = set()
    for name in ("appendonly", "appendfsync"):
        try:
            answers = executor.on_every_primary("CONFIG", "GET", name)
        except (ResponseError, ServerUnfit):
            return False
        found.update(pair[1].decode() if pair else "" for pair in answers.values())
    return found == {"yes", "always"}


def _said(error: Exception) -> str:
    return str(error.__cause__ or error)
