"""`changeover acl`: a user of Redis for each kind of process, with no more than it needs."""

from __future__ import annotations

import shlex
from typing import Annotated, Final, get_args

import typer

from changeover._acl import AclUser, Role, acl_user
from changeover.cli._options import Json, one_of
from changeover.cli._output import note, say, say_json
from changeover_shared._identifiers import name
from changeover_shared._settings import read_settings

_ROLES: Final = get_args(Role)
_TAKEN: Final = "PASSWORD"


def acl(
    role: Annotated[
        Role,
        typer.Argument(metavar="|".join(_ROLES), parser=one_of(*_ROLES), help="Whose user."),
    ],
    user: Annotated[
        str | None, typer.Option("--user", help="Its name. Default: the prefix and the role.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the ACL SETUSER line of a producer, a worker or an operator."""
    wanted = None if user is None else name(user, field="user")
    made = acl_user(role, read_settings().prefix, wanted)
    if as_json:
        say_json(made)
        return
    say(_line(made))
    note(f"put the password where {_TAKEN} stands; ACL SAVE or CONFIG REWRITE keeps the user")
    note("a Cluster needs it on every node; sentinels have users of their own")


def _line(made: AclUser) -> str:
    rules = [*made.rules[:2], f">{_TAKEN}", *made.rules[2:]]
    return shlex.join(["ACL", "SETUSER", made.user, *rules])
