"""Ask one question of many sessions. Running it again repeats nothing: the ids are the same.

python examples/fan_out.py items.txt
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from changeover import Client, Receipt, Submission


async def main(items: list[str]) -> None:
    """Submit everything, then print outcomes as they come."""
    work = [
        Submission(f"triage:{n}", f"Triage this: {item}", id=f"triage:{n}:v1", priority=-2)
        for n, item in enumerate(items)
    ]
    async with Client(tenant="backfill") as client:
        answers = [answer async for answer in client.submit_many(work)]
        receipts = [answer for answer in answers if isinstance(answer, Receipt)]
        async for outcome in client.wait_many(receipts, timeout="2h"):
            print(outcome.session_id, outcome.ending, outcome.text)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).read_text("utf-8").splitlines()))
