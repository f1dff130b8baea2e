"""Policies: what a message asks for when its session has a turn running, or others waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from changeover_shared._errors import Invalid
from changeover_shared._units import Duration, milliseconds

Policy = Literal["enqueue", "steer", "join", "latest", "interrupt", "rollback", "reject"]
"""
`enqueue`: a turn of its own, in order. `steer`: into the running turn at its next step boundary,
else queued. `join`: one turn together with its neighbours that want the same. `latest`: in the
place of those that wait and want the same. `interrupt`: stops the running turn, then runs.
`rollback`: the same, and what the stopped turn said leaves the context. `reject`: `Busy` unless
the session has nothing to do.
"""

LONGEST_WAIT: Final = "1d"
"""How long a message may wait for more at most."""


@dataclass(frozen=True)
class Debounce:
    """Wait until nothing more has come for `quiet`, and at most `max_wait` since the first; then
    all that came is one turn. Raises `Invalid`."""

    quiet: Duration
    max_wait: Duration = "10s"

    def __post_init__(self) -> None:
        quiet_ms = milliseconds(self.quiet, field="debounce: quiet")
        longest_ms = milliseconds(self.max_wait, field="debounce: max_wait")
        if not 0 < quiet_ms <= longest_ms:
            reason = f"quiet is over 0 and at most max_wait, not {quiet_ms} of {longest_ms} ms"
            raise Invalid(field="debounce", reason=reason)
        if longest_ms > milliseconds(LONGEST_WAIT):
            raise Invalid(field="debounce", reason=f"max_wait is at most {LONGEST_WAIT}")


AnyPolicy = Policy | Debounce


@dataclass(frozen=True, slots=True)
class Wish:
    """A policy as the scripts take it. Messages of one key belong together: those that join, that
    are gathered and that are replaced all want the same."""

    policy: str
    key: str = ""
    quiet_ms: int = 0
    max_wait_ms: int = 0


ENQUEUE: Final = Wish("enqueue")
AGENTS_DEFAULT: Final = Wish("")
"""What the session's agent wants."""
_GATHERING: Final = ("join", "latest")


def wish_of(policy: AnyPolicy) -> Wish:
    """Check a policy and say what it wants of the scripts; raises `Invalid`."""
    if isinstance(policy, Debounce):
        quiet_ms, longest_ms = milliseconds(policy.quiet), milliseconds(policy.max_wait)
        return Wish("debounce", "debounce", quiet_ms, longest_ms)
    if not isinstance(policy, str) or policy not in get_args(Policy):
        known = ", ".join(get_args(Policy))
        raise Invalid(field="policy", reason=f"{policy!r:.80} is none of {known}, and no Debounce")
    return Wish(policy, policy if policy in _GATHERING else "")


def read_policy(text: str) -> AnyPolicy:
    """Read a policy as people write it: a word, or `debounce:1.5s` or `debounce:1.5s,8s`.

    Raises `Invalid`.
    """
    word, spans, rest = text.partition(":")
    if word == "debounce" and spans:
        quiet, comma, longest = rest.partition(",")
        return Debounce(quiet, longest) if comma else Debounce(quiet)
    for known in get_args(Policy):
        if text == known:
            found: Policy = known
            return found
    known = ", ".join(get_args(Policy))
    raise Invalid(field="policy", reason=f"{text!r:.80} is none of {known}, debounce:QUIET[,MAX]")


def write_policy(policy: AnyPolicy) -> str:
    """Write a policy so that `read_policy` reads the same."""
    wish = wish_of(policy)
    if wish.policy == "debounce":
        return f"debounce:{wish.quiet_ms}ms,{wish.max_wait_ms}ms"
    return wish.policy


def defaults_of(entries: Mapping[str, str]) -> dict[str, Wish]:
    """What agents want of messages that name no policy, from agent -> policy as it is written.

    What this release cannot read counts as `enqueue`, and that is left out.
    """
    found: dict[str, Wish] = {}
    for agent, text in entries.items():
        try:
            wish = wish_of(read_policy(text))
        except Invalid:
            continue
        if wish != ENQUEUE:
            found[agent] = wish
    return found
