"""`changeover version`: what to put into a report."""

from __future__ import annotations

import asyncio
import json
import platform
from importlib.metadata import version as installed
from typing import Annotated, Any

import typer

from changeover.cli._options import Json
from changeover.cli._output import say, say_json
from changeover_shared._server.url import parse_url
from changeover_shared._settings import Settings, read_settings
from changeover_shared._store.executor import Executor
from changeover_shared._store.keys import Keys


def version(
    redis: Annotated[
        str | None, typer.Option("--redis", metavar="URL", help="Also ask this server.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Report the versions of everything."""
    told: dict[str, Any] = {
        "version": installed("changeover"),
        "python": platform.python_version(),
        "redis_py": installed("redis"),
    }
    if redis is not None:
        told["redis"] = asyncio.run(_ask(redis, read_settings()))
    if as_json:
        say_json(told)
        return
    say(f"changeover {told['version']} · Python {told['python']} · redis-py {told['redis_py']}")
    if "redis" in told:
        say(" · ".join(f"{name} {value}" for name, value in told["redis"].items()))


async def _ask(url: str, settings: Settings) -> dict[str, Any]:
    """The server, and the fleet on it if there is one; nothing is written."""
    executor = await Executor.connect(url)
    try:
        info = _fields(await executor.command("INFO"))
        fleet = await executor.command("GET", Keys(settings.prefix, settings.partitions).config)
    finally:
        await executor.aclose()
    made = "valkey" if "valkey_version" in info else "redis"
    return {
        "url": parse_url(url).shown,
        "server": f"{made} {info.get('valkey_version') or info.get('redis_version', 'unknown')}",
        "mode": info.get("redis_mode") or info.get("server_mode") or "standalone",
        "aof": "on" if info.get("aof_enabled") == "1" else "off",
        "maxmemory_policy": info.get("maxmemory_policy", "unknown"),
        "prefix": settings.prefix,
        "partitions": json.loads(fleet)["partitions"] if fleet else None,
    }


def _fields(info: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in info.decode().splitlines())
    return {name: value for name, colon, value in lines if colon}
