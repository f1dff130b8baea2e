"""Who is dead, judged by which connections a server has. No I/O, no clock.

Every connection of a worker has the worker's incarnation as its name, so the end of a process is
seen at once where its connections were: none is left. The same is seen for a moment when its
connections are cut and made anew, so a judgement takes time, and is put off by every sign that it
is the server or the network that cuts connections.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

PROVEN_S: Final = 1.5
"""For how long an incarnation must have had no connection. Longer than the second after which a
worker that holds something, and has lost all of its connections, has made new ones and says so."""

Connection = tuple[str, int]
"""The name of a server, and the number that it gave; a server never gives one twice."""
Seen = Mapping[str, Set[Connection]]
"""Incarnation -> its connections, on all servers."""


class Evidence:
    """What successive looks at the connections of a fleet come to."""

    def __init__(self, me: str) -> None:
        """`me` is who looks: an incarnation like the others."""
        self._me = me
        self._known: dict[str, frozenset[Connection]] = {}
        self._missing_since: dict[str, float] = {}

    @property
    def known(self) -> Mapping[str, frozenset[Connection]]:
        """The incarnations that were seen connected, with the connections that they had last.

        Who never was is no suspect: a proxy may drop the names.
        """
        return self._known

    @property
    def suspects(self) -> Set[str]:
        """Who has no connection any more."""
        return self._missing_since.keys()

    def forget_all(self) -> None:
        """Something happened to the server or to who looks: everybody must be seen again."""
        self._known.clear()
        self._missing_since.clear()

    def forget(self, incarnation: str) -> None:
        """It must be seen again before it is a suspect."""
        self._known.pop(incarnation, None)
        self._missing_since.pop(incarnation, None)

    def look(self, seen: Seen, *, asked_at: float, answered_at: float) -> tuple[str, ...]:
        """Take note of all connections that there are; who is proven dead."""
        if self._me not in seen:
            self.forget_all()
            return ()
        gone = [one for one in self._known if one not in seen]
        # Whoever is still there and has lost a connection: it may be that somebody cuts them.
        cut = any(self._known[one] - seen[one] for one in self._known if one in seen)
        for one in gone:
            if cut or one not in self._missing_since:
                self._missing_since[one] = answered_at
        for one, connections in seen.items():
            self._known[one] = frozenset(connections)
            self._missing_since.pop(one, None)
        return tuple(one for one in gone if asked_at - self._missing_since[one] >= PROVEN_S)
