"""Which arguments of a script are payloads, and how they leave: as its header says. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import cast

from changeover_shared._store.payloads import Kind, Payloads
from changeover_shared._store.requests import Request
from changeover_shared._store.scripts import Value, script


def sealed(request: Request, payloads: Payloads) -> Request:
    """The request with its payloads as they are stored."""
    header = script(request.name).header
    if not payloads.encrypts or not header.sealed:
        return request
    mine = payloads.of(str(request.args["session"]))
    args = dict(request.args)
    lists = dict(request.lists or {})
    for name, word in header.sealed.items():
        kind = cast(Kind, word)
        of_list, dot, field = name.partition(".")
        if not dot:
            args[name] = mine.seal(kind, args[name])
            continue
        at = header.lists[of_list].index(field)
        lists[of_list] = [
            _with(record, at, mine.seal(kind, record[at])) for record in lists.get(of_list, ())
        ]
    return dataclasses.replace(request, args=args, lists=lists)


def _with(record: Sequence[Value], at: int, value: Value) -> list[Value]:
    return [*record[:at], value, *record[at + 1 :]]
