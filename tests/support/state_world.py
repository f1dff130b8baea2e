"""Sessions in every status, and everything that can happen to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from changeover_shared._store.records import Lease, NewWait
from changeover_shared._store.state import Trigger
from changeover_shared._words import GiveUp, Status
from tests.support.driving import LATER_MS, Driver

WAIT = "w1"


class World:
    """One session, and the lease that its last holder had."""

    def __init__(self, drive: Driver) -> None:
        self.drive = drive
        self.lease = Lease(drive.session, 1, "w1:aa", "nonce-1", drive.route)

    async def outcome(self, reply: str, *good: str) -> str:
        """The status after a reply that changed something, else the word of the refusal."""
        if reply not in good:
            return reply
        return await self.drive.status()


# Statuses


async def unknown(world: World) -> None:
    """Nobody has submitted anything."""


async def idle(world: World) -> None:
    """A turn has ended, nothing waits."""
    world.lease = await world.drive.run("m0")
    await world.drive.finish(world.lease)


async def scheduled(world: World) -> None:
    """A message waits for its time."""
    await idle(world)
    await world.drive.submit("m1", due_ms=await world.drive.now() + LATER_MS)


async def fresh(world: World) -> None:
    """A message waits, no turn is open."""
    await world.drive.submit("m1")


async def handed_off(world: World) -> None:
    """An open turn with an open wait, and a message behind it."""
    await held_turn(world)
    await world.drive.give_up(world.lease)


async def held_turn(world: World) -> None:
    """The same, held."""
    world.lease = await world.drive.run("m0")
    await world.drive.commit(world.lease, waits=(NewWait(WAIT, "approval"),))
    await world.drive.submit("m1")


async def held_fresh(world: World) -> None:
    """Held before its first turn."""
    await world.drive.submit("m1")
    world.lease = await world.drive.hold()


async def held_empty(world: World) -> None:
    """Held, and what was there has been cancelled."""
    await held_fresh(world)
    await world.drive.cancel("m1", "c0")


async def held_answered(world: World) -> None:
    """An open turn with an answer that it has not seen, and nothing behind it."""
    world.lease = await world.drive.run("m0")
    await world.drive.commit(world.lease, waits=(NewWait(WAIT, "approval"),))
    await world.drive.answer(WAIT, "a0")


async def held_interrupted(world: World) -> None:
    """An open turn that somebody wants stopped."""
    await held_turn(world)
    await world.drive.interrupt("i0")


async def parked(world: World) -> None:
    """A turn waits for an answer, a message waits behind it."""
    world.lease = await world.drive.run("m0")
    await world.drive.wait_for(world.lease, WAIT)
    await world.drive.submit("m1")


async def parked_until(world: World) -> None:
    """A turn waits for a job with a deadline."""
    world.lease = await world.drive.run("m0")
    await world.drive.wait_for(world.lease, WAIT, "job", await world.drive.now() + LATER_MS)


async def quarantined(world: World) -> None:
    """An open turn that killed its workers."""
    await handed_off(world)
    await world.drive.quarantine()


async def quarantined_parked(world: World) -> None:
    """A turn that waits, stopped by an operator."""
    await parked(world)
    await world.drive.stop()


async def quarantined_scheduled(world: World) -> None:
    """A message that waits for its time, stopped by an operator."""
    await scheduled(world)
    await world.drive.stop()


async def quarantined_fresh(world: World) -> None:
    """A message that killed its workers before its turn began."""
    await fresh(world)
    await world.drive.quarantine()


async def closed(world: World) -> None:
    world.lease = await world.drive.run("m0")
    await world.drive.submit("m1")
    await world.drive.close(world.lease)


async def deleted(world: World) -> None:
    world.lease = await world.drive.run("m0")
    await world.drive.delete()


Arrange = Callable[[World], Awaitable[None]]

VARIANTS: Mapping[Status | None, tuple[Arrange, ...]] = {
    None: (unknown,),
    Status.IDLE: (idle, scheduled),
    Status.READY: (fresh, handed_off),
    Status.HELD: (
        held_turn,
        held_fresh,
        held_empty,
        held_answered,
        held_interrupted,
    ),
    Status.PARKED: (parked, parked_until),
    Status.QUARANTINED: (
        quarantined,
        quarantined_parked,
        quarantined_scheduled,
        quarantined_fresh,
    ),
    Status.CLOSED: (closed,),
    Status.DELETED: (deleted,),
}


# Triggers


async def submit(world: World, **given: object) -> str:
    reply = await world.drive.submit("new", **given)  # type: ignore[arg-type]
    return await world.outcome(reply[0], "ACCEPTED")


async def submit_later(world: World) -> str:
    return await submit(world, due_ms=await world.drive.now() + LATER_MS)


async def answer(world: World) -> str:
    return await world.outcome((await world.drive.answer(WAIT, "a1"))[0], "ACCEPTED")


async def second_answer(world: World) -> str:
    await world.drive.answer(WAIT, "a1")
    return str((await world.drive.answer(WAIT, "a2"))[0])


async def interrupt(world: World) -> str:
    return await world.outcome((await world.drive.interrupt("i1"))[0], "ACCEPTED", "MERGED")


async def interrupt_other(world: World) -> str:
    return str((await world.drive.interrupt("i1", "t_99"))[0])


async def cancel(world: World) -> str:
    return await world.outcome((await world.drive.cancel("m1"))[0], "CANCELLED")


async def due(world: World) -> str:
    drive = world.drive
    for name, parts in (await drive.work()).items():
        if not name.startswith("w:") and float(parts[1]) > 0:
            await drive.make_due(int(name))
        elif name.startswith("w:") and float(parts[1]) > 0:
            await drive.redis(
                "HSET", drive.key("work"), name, "|".join([parts[0], "1", *parts[2:]])
            )
    return await reap(world)


async def reap(world: World) -> str:
    return await world.outcome((await world.drive.reap())[0][0], "PLACED")


async def claim(world: World, **given: object) -> str:
    answers = await world.drive.claim(
        incarnation="w2:bb", nonce="nonce-2", **given  # type: ignore[arg-type]
    )  # fmt: skip
    return await world.outcome(answers[0][0], "GRANTED", "SUSPECT", "QUARANTINED")


async def claim_after(world: World, attempts: int) -> str:
    if await world.drive.head():
        await world.drive.set_head(attempts=attempts)
    return await claim(world)


async def expire(world: World) -> str:
    await world.drive.expire()
    return await reap(world)


async def evict(world: World) -> str:
    await world.drive.evict((world.drive.session, world.lease.token))
    return await reap(world)


async def renew(world: World) -> str:
    return await world.outcome((await world.drive.renew(world.lease))[0][0], "OK")


async def append(world: World) -> str:
    return await world.outcome((await world.drive.append(world.lease))[0], "OK")


async def commit(world: World, kind: str, **given: object) -> str:
    if not await world.drive.head():
        await world.drive.neighbour().submit("m1")
        given = {"turn": "", **given}
    reply = await world.drive.commit(world.lease, kind, **given)
    return await world.outcome(reply[0], "OK")


async def start(world: World) -> str:
    taken = tuple(int(n) for n, parts in (await world.drive.work()).items() if parts[4:5] == ["m1"])
    return await commit(world, "start", take=taken)


async def give_up(world: World, reason: GiveUp) -> str:
    return await world.outcome((await world.drive.give_up(world.lease, reason))[0], "OK")


async def reroute(world: World) -> str:
    await some_partition(world)
    return await world.outcome((await world.drive.reroute())[0], "OK")


async def defer(world: World) -> str:
    await some_partition(world)
    return await world.outcome((await world.drive.defer())[0], "OK")


async def stop(world: World) -> str:
    await some_partition(world)
    return await world.outcome((await world.drive.stop())[0], "OK")


async def redrive(world: World) -> str:
    await some_partition(world)
    return await world.outcome((await world.drive.redrive(number=1))[0], "OK")


async def redrive_without(world: World) -> str:
    await some_partition(world)
    open_ones = [int(n) for n in await world.drive.work() if not n.startswith("w:")]
    first = min(open_ones, default=1)
    return await world.outcome((await world.drive.redrive(first, number=1))[0], "OK")


async def dead_letter(world: World) -> str:
    await some_partition(world)
    return await world.outcome((await world.drive.dead_letter(number=1))[0], "OK")


async def delete(world: World) -> str:
    await some_partition(world)
    return await world.outcome((await world.drive.delete())[0], "OK")


async def some_partition(world: World) -> None:
    """A fleet that has heard of somebody."""
    if not await world.drive.head():
        await world.drive.neighbour().submit("m1")


TRIGGERS: Mapping[Trigger, Callable[[World], Awaitable[str]]] = {
    Trigger.SUBMIT: submit,
    Trigger.SUBMIT_LATER: submit_later,
    Trigger.SUBMIT_NEVER_CREATE: lambda world: submit(world, may_create=False),
    Trigger.SUBMIT_INTERRUPTING: lambda world: submit(world, policy="interrupt"),
    Trigger.ANSWER: answer,
    Trigger.SECOND_ANSWER: second_answer,
    Trigger.INTERRUPT: interrupt,
    Trigger.INTERRUPT_OTHER: interrupt_other,
    Trigger.CANCEL: cancel,
    Trigger.DUE: due,
    Trigger.CLAIM: claim,
    Trigger.CLAIM_SUSPECT: lambda world: claim_after(world, 3),
    Trigger.CLAIM_EXHAUSTED: lambda world: claim_after(world, 5),
    Trigger.EXPIRE: expire,
    Trigger.EVICT: evict,
    Trigger.RENEW: renew,
    Trigger.APPEND: append,
    Trigger.STEP: lambda world: commit(world, "step"),
    Trigger.START: start,
    Trigger.PARK: lambda world: commit(world, "step", next="park"),
    Trigger.END: lambda world: commit(world, "end", end="completed", next="release"),
    Trigger.END_GO_ON: lambda world: commit(world, "end", end="completed", next="auto"),
    Trigger.END_CLOSE: lambda world: commit(world, "end", end="completed", next="close"),
    Trigger.QUARANTINE: lambda world: commit(world, "step", next="quarantine"),
    Trigger.REQUEUE: lambda world: commit(world, "end", end="requeue", next="release"),
    Trigger.HAND_OFF: lambda world: give_up(world, GiveUp.HAND_OFF),
    Trigger.RELEASE: lambda world: give_up(world, GiveUp.RELEASE),
    Trigger.UNABLE: lambda world: give_up(world, GiveUp.UNABLE),
    Trigger.REROUTE: reroute,
    Trigger.DEFER: defer,
    Trigger.STOP: stop,
    Trigger.REDRIVE: redrive,
    Trigger.REDRIVE_WITHOUT: redrive_without,
    Trigger.DEAD_LETTER: dead_letter,
    Trigger.DELETE: delete,
}
