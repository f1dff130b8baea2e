"""The Lua scripts: loaded once, with the contract that is written in their headers.

A header is prose and then sections, one name a line:

    -- KEYS     name   TYPE  what it is         bound to a Lua local of that name
    -- EACH     name   TYPE                     keys repeated for every session of the call:
                                                EACH[i].name
    -- ARGS     name   type                     bound to a local of that name, always a string
    -- LIST     name   field field ...          after the args: a count, then that many records,
                                                bound to a table of {field = value}
    -- SEALED   name   kind                     args, and fields of lists, that are encrypted when
                                                the fleet encrypts: `body`, `events.body`
    -- REPLIES  WORD   value ...                every word that the script answers
    -- USES     include ...                     files of lua/include, in order
    -- FLAGS    flag ...                        for servers that know script flags

The binding is generated from the header, so the header cannot drift from the body. The content is
the version: two releases on one server have two SHAs and cannot meet each other's script.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

NAMES: Final = (
    "init",
    "raise_epoch",
    "submit",
    "control",
    "peek",
    "reap",
    "claim",
    "renew",
    "append",
    "commit",
    "give_up",
    "evict",
    "quarantine",
    "redrive",
    "dead_letter",
    "delete",
    "reroute",
    "defer",
    "trim",
    "purge",
    "pressure",
    "full",
    "recount",
    "pause",
    "schedule",
    "permit",
    "limit",
)
"""Every script, by the stem of its file."""

EXEMPT: Final = {"settle": "commit", "reschedule": "schedule"}
"""Further names of scripts that run also when memory is full, because what they are asked with
under this name ends more than it adds."""

_SECTION = re.compile(r"-- (KEYS|EACH|ARGS|LIST|SEALED|REPLIES|USES|FLAGS|       )  +(\S.*)")
_WORD = re.compile(r"[A-Za-z_]\w*")
MAX_RECORDS: Final = 8000
"""The most records one list may have; more would not fit Lua's stack when written."""

Value = str | bytes | int


@dataclass(frozen=True, slots=True)
class Header:
    """What a script's first comment declares."""

    keys: tuple[str, ...]
    each: tuple[str, ...]
    args: tuple[str, ...]
    lists: Mapping[str, tuple[str, ...]]
    sealed: Mapping[str, str]
    """What holds conversation -> which kind of payload it is; lists as `<list>.<field>`."""
    replies: tuple[str, ...]
    uses: tuple[str, ...]
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua file with what it includes: its text, its SHA and its header."""

    name: str
    header: Header
    body: str
    """The file as it is written."""
    text: str
    """What a server is given: the flags line, the bindings, the includes, the body."""
    plain: str
    """The same without the flags line, for fakeredis, which refuses it."""
    sha: str
    """What EVALSHA calls it by."""
    plain_sha: str
    """The SHA of the text without flags."""

    def arguments(
        self,
        keys: Mapping[str, str],
        args: Mapping[str, Value],
        *,
        each: Sequence[Mapping[str, str]] = (),
        lists: Mapping[str, Sequence[Sequence[Value]]] | None = None,
    ) -> tuple[int, list[Value]]:
        """Lay out KEYS and ARGV in the order of the header: the key count, then everything.

        Raises `KeyError` for a missing name and `ValueError` for a list that is too long.
        """
        header = self.header
        flat: list[Value] = [keys[name] for name in header.keys]
        for one in each:
            flat += [one[name] for name in header.each]
        count = len(flat)
        flat += [args[name] for name in header.args]
        for name, fields in header.lists.items():
            records = (lists or {}).get(name, ())
            if len(records) > MAX_RECORDS:
                raise ValueError(f"{self.name}: {len(records)} {name} in one call")
            flat.append(len(records))
            for record in records:
                if len(record) != len(fields):
                    raise ValueError(f"{self.name}: {name} has the fields {fields}")
                flat += record
        return count, flat


def _sha(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _read(name: str) -> str:
    return files("changeover_shared").joinpath("lua", name).read_text("utf-8")


def parse_header(text: str) -> Header:
    """Read the sections of a script's leading comment."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        if match := _SECTION.match(line):
            section = match[1].strip() or section
            found.setdefault(section, []).append(match[2])

    def first_words(name: str) -> tuple[str, ...]:
        lines = (_WORD.match(line) for line in found.get(name, ()))
        return tuple(match[0] for match in lines if match)

    def all_words(name: str) -> tuple[str, ...]:
        return tuple(word for line in found.get(name, ()) for word in line.split())

    return Header(
        keys=first_words("KEYS"),
        each=first_words("EACH"),
        args=tuple(line.split()[0] for line in found.get("ARGS", ())),
        lists={
            line.split()[0]: tuple(re.split(r"  +", line, maxsplit=2)[1].split())
            for line in found.get("LIST", ())
        },
        sealed={line.split()[0]: line.split()[1] for line in found.get("SEALED", ())},
        replies=tuple(w for w in first_words("REPLIES") if w.isupper()),
        uses=all_words("USES"),
        flags=all_words("FLAGS"),
    )


def _bindings(header: Header) -> str:
    """Lua that binds the header's names to KEYS and ARGV."""
    lines = []
    if header.keys:
        slots = ", ".join(f"KEYS[{i}]" for i in range(1, len(header.keys) + 1))
        lines.append(f"local {', '.join(header.keys)} = {slots}")
    if header.each:
        fields = ", ".join(f"{name} = KEYS[k + {i}]" for i, name in enumerate(header.each))
        lines += [
            "local EACH = {}",
            f"for k = {len(header.keys) + 1}, #KEYS, {len(header.each)} do",
            f"  EACH[#EACH + 1] = {{{fields}}}",
            "end",
        ]
    if header.args:
        slots = ", ".join(f"ARGV[{i}]" for i in range(1, len(header.args) + 1))
        lines.append(f"local {', '.join(header.args)} = {slots}")
    if header.lists:
        lines.append(f"local AT = {len(header.args) + 1}")
    for name, names in header.lists.items():
        fields = ", ".join(f"{field} = ARGV[AT + {i}]" for i, field in enumerate(names, 1))
        lines += [
            f"local {name} = {{}}",
            "for i = 1, tonumber(ARGV[AT]) do",
            f"  {name}[i] = {{{fields}}}",
            f"  AT = AT + {len(names)}",
            "end",
            "AT = AT + 1",
        ]
    expected = "AT - 1" if header.lists else str(len(header.args))
    lines.append(f"if #ARGV ~= {expected} then return redis.error_reply('ARGS count') end")
    return "\n".join(lines)


@cache
def script(name: str) -> Script:
    """Load `lua/<name>.lua` with what it includes."""
    file = EXEMPT.get(name, name)
    body = _read(f"{file}.lua")
    header = parse_header(body)
    used_flags = ("allow-oom",) if name in EXEMPT else header.flags
    includes = [_read(f"include/{used}.lua") for used in header.uses]
    replies = list(header.replies)
    for text in includes:
        replies += [word for word in parse_header(text).replies if word not in replies]
    plain = "\n".join([_bindings(header), *includes, body])
    flags = f"#!lua flags={','.join(used_flags)}\n" if used_flags else ""
    return Script(
        name=file,
        header=Header(
            header.keys,
            header.each,
            header.args,
            header.lists,
            header.sealed,
            tuple(replies),
            header.uses,
            used_flags,
        ),
        body=body,
        text=flags + plain,
        plain=plain,
        sha=_sha(flags + plain),
        plain_sha=_sha(plain),
    )
