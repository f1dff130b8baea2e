"""What an idle session with a 20-message history takes in Redis, made by really running turns.

A message is 200 bytes, and so is an answer. What is counted is everything that ten turns leave:
head, transcript, journal, turn records, receipts, checkpoint, and the places in the indexes.
"""

from __future__ import annotations

from benchmarks._fleet import fleet
from benchmarks._plan import Measurement, Row, Scale, Values

TURNS = 10


async def _run(scale: Scale) -> Values:
    count = scale.of(300, 50)
    async with fleet() as found:
        with found.worker():
            await found.warm()
            before = found.server.data_bytes()
            for _ in range(TURNS):
                await found.completed(
                    await found.submit("constant", (f"s-{n}" for n in range(count)))
                )
            await found.done()
            after = found.server.data_bytes()
    return {"redis": (after - before) / count / 1024}


MEMORY = Measurement(
    "memory",
    (Row("redis", f"Redis memory per idle session of {2 * TURNS} messages", "KiB"),),
    _run,
)
