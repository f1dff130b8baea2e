"""A chat gateway: no conversation lock, no buffer, no retry queue; any number of replicas.

    CHANGEOVER_REDIS_URL=... python examples/gateway.py < updates.jsonl

Each line is an update as a chat network's webhook would bring it: `{"update_id", "chat", "text"}`.
A retried webhook has the same `update_id`, so it ends as a duplicate, not as a second turn.
"""

from __future__ import annotations

import asyncio
import json
import sys

from changeover import Busy, Client


async def accept(client: Client, update: dict[str, str]) -> str:
    """Take one update; what the webhook answers."""
    try:
        receipt = await client.submit(
            f"telegram:{update['chat']}",
            update["text"],
            id=f"telegram:{update['update_id']}",
            context={"chat": update["chat"]},
        )
    except Busy as busy:  # 64 unread messages: let the network come back
        return f"429 retry after {busy.retry_after.total_seconds():g} s"
    return f"202 {receipt.answer}, {receipt.position} before it"


async def main() -> None:
    """Take every update of standard input."""
    async with Client() as client:
        for line in sys.stdin:
            print(await accept(client, json.loads(line)))


if __name__ == "__main__":
    asyncio.run(main())
