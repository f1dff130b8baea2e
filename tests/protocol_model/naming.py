"""Worlds that differ only in names are one: nonces, and the sizes of fences and revisions.

Only their order counts, and which of two equal workers is which does not.
"""

from __future__ import annotations

from tests.protocol_model.requests import Append, Claim, Commit, GiveUp, Request
from tests.protocol_model.session import Lease, Session
from tests.protocol_model.world import Holding, Worker, World, in_order


class _Names:
    """Everything that is named in a world, in the order of a walk through it."""

    def __init__(self, world: World, workers: tuple[int, ...]) -> None:
        count = len(world.sessions)
        self._nonces: dict[int, int] = {}
        self._fences: list[set[int]] = [set() for _ in range(count)]
        self._revisions: list[set[int]] = [set() for _ in range(count)]
        for group in (world.sessions, world.replica or ()):
            for index, session in enumerate(group):
                self._note_session(index, session)
        for worker in (world.workers[old] for old in workers):
            if worker.holding is not None:
                self._note_lease(worker.holding.session, worker.holding.lease)
                self._revisions[worker.holding.session].add(worker.holding.view.revision)
            if worker.asking is not None:
                self._note_request(worker.asking)
        for _, _, request in world.network:
            self._note_request(request)
        self.fences = [{value: k for k, value in enumerate(sorted(one))} for one in self._fences]
        self.revisions = [
            {value: k for k, value in enumerate(sorted(one))} for one in self._revisions
        ]
        self.nonces = self._nonces

    def _note_nonce(self, nonce: int) -> None:
        self._nonces.setdefault(nonce, len(self._nonces) + 1 if nonce else 0)

    def _note_lease(self, index: int, lease: Lease) -> None:
        self._fences[index].add(lease.fence)
        self._note_nonce(lease.nonce)

    def _note_session(self, index: int, session: Session) -> None:
        self._fences[index].add(session.fence)
        self._revisions[index].add(session.revision)
        if session.lease is not None:
            self._note_lease(index, session.lease)
        if session.released is not None:
            self._note_lease(index, session.released)
        if session.used_nonce:
            self._note_nonce(session.used_nonce)
        if session.commit_id is not None:
            self._note_nonce(session.commit_id[0])
            self._revisions[index].add(session.commit_id[1])

    def _note_request(self, asked: Request) -> None:
        if isinstance(asked, Claim):
            self._note_nonce(asked.nonce)
        elif isinstance(asked, Append | Commit | GiveUp):
            self._note_lease(asked.session, asked.lease)
            if isinstance(asked, Commit):
                self._revisions[asked.session].update((asked.revision, asked.commit_id[1]))
                self._note_nonce(asked.commit_id[0])


class Renaming:
    """A world with other names."""

    def __init__(self, world: World, workers: tuple[int, ...]) -> None:
        self._names = _Names(world, workers)
        self._workers = workers
        self._world = world

    def renamed(self) -> World:
        world = self._world
        sessions = tuple(self._session(i, one) for i, one in enumerate(world.sessions))
        replica = world.replica and tuple(self._session(i, s) for i, s in enumerate(world.replica))
        workers = tuple(self._worker(world.workers[old]) for old in self._workers)
        network = in_order(
            tuple(
                (sender, self._workers[i] if sender == "worker" else i, self._request(asked))
                for sender, i, asked in world.network
            )
        )
        return world._replace(
            sessions=sessions, replica=replica, workers=workers, network=network
        )  # fmt: skip

    def _lease(self, index: int, lease: Lease) -> Lease:
        return Lease(
            self._workers[lease.worker],
            lease.boot,
            self._names.nonces[lease.nonce],
            self._names.fences[index][lease.fence],
        )

    def _commit_id(self, index: int, id: tuple[int, int, int]) -> tuple[int, int, int]:
        return (self._names.nonces[id[0]], self._names.revisions[index][id[1]], id[2])

    def _session(self, index: int, session: Session) -> Session:
        return session._replace(
            fence=self._names.fences[index][session.fence],
            revision=self._names.revisions[index][session.revision],
            lease=session.lease and self._lease(index, session.lease),
            released=session.released and self._lease(index, session.released),
            used_nonce=session.used_nonce and self._names.nonces[session.used_nonce],
            commit_id=session.commit_id and self._commit_id(index, session.commit_id),
        )

    def _worker(self, worker: Worker) -> Worker:
        holding = worker.holding
        return Worker(
            worker.boot,
            holding and self._holding(holding),
            worker.asking and self._request(worker.asking),
        )

    def _holding(self, holding: Holding) -> Holding:
        revision = self._names.revisions[holding.session][holding.view.revision]
        return holding._replace(
            lease=self._lease(holding.session, holding.lease),
            view=holding.view._replace(revision=revision),
        )

    def _request(self, asked: Request) -> Request:
        if isinstance(asked, Claim):
            return asked._replace(
                worker=self._workers[asked.worker], nonce=self._names.nonces[asked.nonce]
            )
        if isinstance(asked, Commit):
            return asked._replace(
                lease=self._lease(asked.session, asked.lease),
                revision=self._names.revisions[asked.session][asked.revision],
                commit_id=self._commit_id(asked.session, asked.commit_id),
            )
        if isinstance(asked, Append | GiveUp):
            return asked._replace(lease=self._lease(asked.session, asked.lease))
        return asked


def fingerprint(world: World) -> int:
    """The same number for worlds that differ in names only."""
    straight = hash(Renaming(world, tuple(range(len(world.workers)))).renamed())
    if len(world.workers) != 2:
        return straight
    return min(straight, hash(Renaming(world, (1, 0)).renamed()))


def fresh_nonce(world: World) -> int:
    """The smallest nonce that nothing in the world remembers."""
    used = set()
    for session in (*world.sessions, *(world.replica or ())):
        used.add(session.used_nonce)
        used.update(lease.nonce for lease in (session.lease, session.released) if lease)
        if session.commit_id:
            used.add(session.commit_id[0])
    asked = [request for _, _, request in world.network]
    for worker in world.workers:
        if worker.holding:
            used.add(worker.holding.lease.nonce)
        if worker.asking:
            asked.append(worker.asking)
    for request in asked:
        if isinstance(request, Claim):
            used.add(request.nonce)
        elif isinstance(request, Append | Commit | GiveUp):
            used.add(request.lease.nonce)
    nonce = 1
    while nonce in used:
        nonce += 1
    return nonce
