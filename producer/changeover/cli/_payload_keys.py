"""`changeover payload-keys`: what is encrypted with which key."""

from __future__ import annotations

import asyncio

from changeover._operator import Operator
from changeover.cli._options import Json, Redis
from changeover.cli._output import say_list, say_table
from changeover_shared._results import PayloadKey


def payload_keys(redis: Redis = None, as_json: Json = False) -> None:
    """Count what each payload key has encrypted: one that is not listed may be dropped."""

    async def ask() -> tuple[PayloadKey, ...]:
        async with Operator(redis) as operator:
            return await operator.payload_keys()

    found = asyncio.run(ask())
    if as_json:
        say_list(found)
        return
    say_table(
        ("KEY", "VALUES", "SESSIONS"),
        [(one.key_id or "none", str(one.values), str(one.sessions)) for one in found],
    )
