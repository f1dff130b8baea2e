"""Schedules, as a client keeps them."""

from __future__ import annotations

from typing import Final, Unpack, get_args

from changeover._pages import checked_limit
from changeover._reader import Reader
from changeover._submission import Message, MessageOptions, Submission, checked_message
from changeover_shared._errors import FormatTooNew, Invalid, PayloadError, TooLarge
from changeover_shared._identifiers import identifier
from changeover_shared._results import Page, Schedule
from changeover_shared._schedules import Missed, Planned, next_after, rhythm
from changeover_shared._store.schedules import Stored
from changeover_shared._units import Duration

MAX_NAME: Final = 200
MAX_PLAN_BYTES: Final = 64 * 1024
"""How much a schedule may hold: the leader reads a hundred of them at once."""


class Planner(Reader):
    """Keep messages that are sent again and again."""

    async def schedule(
        self,
        name: str,
        session: str,
        message: str | Message,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str = "UTC",
        missed: Missed = "once",
        **options: Unpack[MessageOptions],
    ) -> Schedule:
        """Send a message at the times of a cron expression in a time zone, or every so often.

        `every` counts from now. Each time is served once, however many workers there are, by a
        submission whose id is `schedule:<name>:<time in ms>`. Times that were missed are served
        by one submission together, or with `missed="skip"` not at all.

        A schedule of the name that does something else is replaced; one that does the same stays
        as it is, so an application may call this whenever it starts. Raises `Invalid`, `TooLarge`,
        `TooManySchedules`, `NotDurable`, `StoreUnavailable`.
        """
        called = _name(name)
        session_id = identifier(session, field="session")
        for field in ("id", "at", "delay"):
            if field in options:
                raise Invalid(field=field, reason="a schedule has times and ids of its own")
        said = checked_message(Submission(session, message, **options), self._settings)
        if missed not in get_args(Missed):
            known = ", ".join(get_args(Missed))
            raise Invalid(field="missed", reason=f"{missed!r:.80} is not one of {known}")
        rhythm(cron, every, tz, now_ms=0)
        store = await self._opened()
        now_ms = await store.now_ms()
        times = rhythm(cron, every, tz, now_ms=now_ms)
        plan = Planned(rhythm=times, missed=missed, message=said)
        size = len(plan.model_dump_json().encode())
        if size > MAX_PLAN_BYTES:
            raise TooLarge(what="the schedule", size=size, limit=MAX_PLAN_BYTES)
        due_ms = await store.schedules.keep(called, session_id, plan, next_after(times, now_ms))
        return _shown(called, session_id, due_ms, plan)

    async def schedules(self, *, cursor: str | None = None, limit: int = 100) -> Page[Schedule]:
        """Schedules by name; the page's `next` is the cursor of those that follow."""
        after, most = "" if cursor is None else _name(cursor, field="cursor"), checked_limit(limit)
        store = await self._opened()
        names = [one for one in await store.schedules.names() if one > after]
        found = await store.schedules.named(names[:most])
        return Page(
            items=tuple(_read(one) for one in found if one is not None),
            next=names[most - 1] if len(names) > most else None,
        )

    async def unschedule(self, name: str) -> bool:
        """Take a schedule away; False when there is none. What it has submitted goes on."""
        called = _name(name)
        store = await self._opened()
        return await store.schedules.drop(called)


def _name(value: str, *, field: str = "name") -> str:
    called = identifier(value, field=field)
    if len(called) > MAX_NAME:
        raise Invalid(field=field, reason=f"{called!r:.80} has more than {MAX_NAME} characters")
    return called


def _read(stored: Stored) -> Schedule:
    """A schedule as people see it; of one that only others can read, what is not encrypted."""
    try:
        return _shown(stored.name, stored.session_id, stored.due_ms, stored.plan())
    except (PayloadError, FormatTooNew):
        return Schedule(name=stored.name, session_id=stored.session_id, due_at_ms=stored.due_ms)


def _shown(name: str, session_id: str, due_ms: int, plan: Planned) -> Schedule:
    times, said = plan.rhythm, plan.message
    return Schedule(
        name=name,
        session_id=session_id,
        due_at_ms=due_ms,
        text=said.op.text,
        agent=said.agent,
        queue=said.queue,
        cron=times.cron or None,
        tz=times.tz if times.cron else None,
        every_ms=times.every_ms or None,
        missed=plan.missed,
        policy=said.policy or None,
        priority=said.priority,
    )
