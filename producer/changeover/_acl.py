"""What each kind of process may do in Redis: rules for `ACL SETUSER`, as few as will do.

A script runs with the rights of who calls it, so its commands and keys are among them. That makes
these users a fence around a fleet and its server, not around its scripts: who may call the script
that writes a session may also write it directly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from changeover_shared._items import Wire
from changeover_shared._store.keys import Keys
from changeover_shared._store.scripts import script

Role = Literal["producer", "worker", "operator"]

_EVERYBODY: Final = (
    "evalsha", "script|load", "info", "cluster|slots", "get", "set", "time", "incr", "pexpire",
    "zadd", "hkeys", "hmget", "zrange",
)  # fmt: skip
"""Joining a fleet, finding a server, running scripts, ringing, durability, schedules."""
_PRODUCER: Final = (
    "hget", "hgetall", "xrange", "xread", "xrevrange", "zcard", "zrank", "zrevrangebyscore",
    "zscore",
)  # fmt: skip
_WORKER: Final = (
    "bzpopmin", "client|list", "del", "hdel", "hget", "hgetall", "hset", "mget", "xrange",
    "xrevrange", "zcard", "zrem",
)  # fmt: skip
_OPERATOR: Final = (
    *_PRODUCER, "cluster|info", "cluster|nodes", "config|get", "exists", "hdel", "hscan",
    "memory|usage", "pttl", "scan", "xlen", "zcount", "zinter", "zscan",
)  # fmt: skip
COMMANDS: Final[Mapping[Role, tuple[str, ...]]] = {
    "producer": (*_EVERYBODY, *_PRODUCER),
    "worker": (*_EVERYBODY, *_WORKER),
    "operator": (*_EVERYBODY, *_OPERATOR),
}
"""What a role sends itself."""

_PRODUCERS_SCRIPTS: Final = ("init", "raise_epoch", "submit", "control", "delete", "schedule")
SCRIPTS: Final[Mapping[Role, tuple[str, ...]]] = {
    "producer": _PRODUCERS_SCRIPTS,
    "worker": (
        "init", "raise_epoch", "peek", "reap", "claim", "renew", "append", "commit", "give_up",
        "evict", "trim", "pressure", "full", "submit", "schedule", "defer", "permit",
        "limit",
    ),
    "operator": (
        *_PRODUCERS_SCRIPTS, "quarantine", "redrive", "dead_letter", "reroute", "trim", "purge",
        "pause", "evict", "reap", "recount",
    ),
}  # fmt: skip
"""Which scripts a role runs."""

_CONNECTING: Final = ("+@connection", "-@admin", "-@dangerous")
"""AUTH, PING, SELECT, CLIENT SETNAME, ASKING, WAIT ...: by category, for older servers do not know
all of them by name. Without what touches other clients."""
_CALLED = re.compile(r"redis\.p?call\('([A-Z]+)'")


class AclUser(Wire):
    """A user of Redis for a role, without a password."""

    role: Role
    user: str
    rules: tuple[str, ...]
    """What `ACL SETUSER <user>` takes; the password is yours to add, as `>password`."""


def acl_user(role: Role, prefix: str, user: str | None = None) -> AclUser:
    """The user of a role for the fleet of a prefix; called `<prefix>-<role>` if not otherwise."""
    keys = Keys(prefix, 1)
    commands = sorted({*COMMANDS[role], *_in_scripts(role)})
    return AclUser(
        role=role,
        user=user or f"{prefix}-{role}",
        rules=(
            "reset",
            "on",
            "resetchannels",
            *_patterns(role, keys),
            "-@all",
            *_CONNECTING,
            *(f"+{command}" for command in commands),
        ),
    )


def _patterns(role: Role, keys: Keys) -> tuple[str, ...]:
    _, tagged = keys.patterns
    common = (f"~{keys.config}", f"~{keys.secret}", f"~{tagged}")
    match role:
        case "producer":
            return (*common, f"%R~{keys.agents}")
        case "worker":
            own = (keys.workers, keys.sweep, keys.agents, keys.census, keys.order("*"))
            return (*common, *_written(*own))
        case "operator":
            read = tuple(f"%R~{key}" for key in (keys.sweep, keys.agents, keys.census))
            return (*common, *_written(keys.workers, keys.order("*")), *read)


def _written(*patterns: str) -> tuple[str, ...]:
    return tuple(f"~{pattern}" for pattern in patterns)


def _in_scripts(role: Role) -> set[str]:
    """The commands inside the scripts of a role."""
    return {
        command.lower() for name in SCRIPTS[role] for command in _CALLED.findall(script(name).text)
    }
