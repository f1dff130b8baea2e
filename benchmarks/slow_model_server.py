"""A model server that takes every request and never answers.

`python -m benchmarks.slow_model_server` says its base address in one line when it listens.
"""

from __future__ import annotations

import asyncio
import sys


async def _take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await reader.read(65536):
            pass
    except ConnectionError:
        pass
    finally:
        writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_take, "127.0.0.1", 0, backlog=4096)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(f"http://127.0.0.1:{port}/v1\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
