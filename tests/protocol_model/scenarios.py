"""What is searched: scenarios, and for each guard the scenario that needs it."""

from __future__ import annotations

from typing import Final

from tests.protocol_model.requests import Guard, Rules
from tests.protocol_model.world import Act, Scenario

_MESSAGE = Act("message")
_LATER = Act("message", due=False)
_INTERRUPT = Act("interrupt")
_PERHAPS_INTERRUPT = Act("interrupt", optional=True)
_CANCEL = Act("cancel", about=1)
_ANSWER = Act("answer", about=1)
_PERHAPS_ANSWER = Act("answer", about=1, optional=True)

SCENARIOS: Final = (
    Scenario(
        "join",
        (_MESSAGE, _MESSAGE),
        {"crash": 2, "expire": 2, "resend": 1, "lose": 1},
        joins=True,
        streams=True,
    ),
    Scenario(
        "cancel and drain",
        (_MESSAGE, _MESSAGE, _CANCEL),
        {"crash": 1, "expire": 1, "lose": 1, "resend": 1, "drain": 1},
    ),
    Scenario(
        "interrupt",
        (_MESSAGE, _PERHAPS_INTERRUPT, _MESSAGE),
        {"crash": 1, "expire": 1, "lose": 1, "resend": 1},
    ),
    Scenario(
        "two interrupts",
        (_MESSAGE, _INTERRUPT, Act("interrupt", about=1), _MESSAGE),
        {"crash": 1, "lose": 1, "resend": 1},
        most_faults=1,
        workers=1,
    ),
    Scenario(
        "tool and interrupt",
        (_MESSAGE, _INTERRUPT),
        {"crash": 2, "expire": 1, "lose": 1, "resend": 1, "drain": 1},
        tool="in process",
        streams=True,
    ),
    Scenario(
        "wait, answer, interrupt, deadline",
        (_MESSAGE, _PERHAPS_ANSWER, _PERHAPS_INTERRUPT),
        {"crash": 1, "expire": 1, "lose": 1, "resend": 1},
        tool="wait",
        wait="job",
        deadline=True,
    ),
    Scenario(
        "wait for a job without a deadline",
        (_MESSAGE, _PERHAPS_ANSWER),
        {"crash": 1, "lose": 1},
        tool="wait",
        wait="job",
    ),
    Scenario(
        "two sessions",
        (_MESSAGE, Act("message", session=1)),
        {"crash": 1, "expire": 1, "lose": 1, "resend": 1},
        sessions=2,
    ),
    Scenario(
        "full inbox while parked",
        (_MESSAGE, _MESSAGE, _ANSWER),
        {"crash": 1, "expire": 1, "lose": 1},
        rules=Rules(depth=1),
        tool="wait",
        tool_once=True,
    ),
    Scenario(
        "two answers",
        (_MESSAGE, _ANSWER, _ANSWER),
        {"crash": 1, "expire": 1, "lose": 1},
        most_faults=1,
        tool="wait",
    ),
    Scenario(
        "delete and create again",
        (_MESSAGE, Act("delete", about=1, after=(0,)), Act("message", after=(1,))),
        {"crash": 1, "expire": 1, "lose": 1, "resend": 2, "purge": 1},
    ),
    Scenario(
        "delete while it waits",
        (_MESSAGE, _PERHAPS_ANSWER, Act("delete", about=1, after=(0,))),
        {"crash": 1, "lose": 1, "resend": 1, "drain": 1},
        tool="wait",
        streams=True,
    ),
    Scenario(
        "poison",
        (_MESSAGE, _MESSAGE),
        {"crash": 3, "expire": 1, "lose": 1, "delete": 1},
        most_faults=3,
        workers=1,
        rules=Rules(max_attempts=2),
    ),
    Scenario(
        "stopped and redriven",
        (_MESSAGE, _MESSAGE),
        {"crash": 2, "lose": 1, "resend": 1, "stop": 2, "redrive": 2, "delete": 1},
        workers=1,
        rules=Rules(max_attempts=2),
    ),
    Scenario(
        "takeover queues again",
        (_MESSAGE, _MESSAGE),
        {"crash": 3, "delete": 1},
        most_faults=3,
        workers=1,
        rules=Rules(max_attempts=2),
        joins=True,
        aborts=True,
    ),
    Scenario(
        "failover with a tool",
        (_MESSAGE,),
        {"crash": 1, "expire": 1, "lose": 1, "fail_over": 1},
        tool="in process",
        replica=True,
    ),
    Scenario(
        "failover with two messages",
        (_MESSAGE, _MESSAGE),
        {"expire": 1, "lose": 1, "fail_over": 1},
        replica=True,
    ),
    Scenario(
        "go on without release",
        (_MESSAGE, _MESSAGE),
        {"crash": 1, "expire": 1, "lose": 1, "resend": 1},
        goes_on=True,
    ),
    Scenario(
        "drain only",
        (_MESSAGE,),
        {"drain": 3, "lose": 1},
        most_faults=4,
        rules=Rules(max_attempts=2),
        no_crashes=True,
    ),
    Scenario(
        "steer and cancel",
        (_MESSAGE, _MESSAGE, _CANCEL),
        {"crash": 1, "expire": 1, "lose": 1, "resend": 1},
        steers=True,
    ),
    Scenario(
        "latest",
        (_MESSAGE, Act("message", policy="latest"), Act("message", policy="latest")),
        {"crash": 1, "expire": 1, "lose": 1},
    ),
    Scenario(
        "interrupt, then run",
        (_MESSAGE, Act("message", policy="interrupt")),
        {"crash": 1, "expire": 1, "lose": 1, "resend": 1, "drain": 1},
        tool="in process",
    ),
    Scenario(
        "scheduled",
        (_MESSAGE, _LATER),
        {"crash": 1, "expire": 1, "lose": 1, "drain": 1},
    ),
    Scenario(
        "put off",
        (_MESSAGE, _PERHAPS_INTERRUPT),
        {"crash": 1, "expire": 1, "lose": 1, "defer": 2},
    ),
)

BY_NAME: Final = {scenario.name: scenario for scenario in SCENARIOS}

FORGETFUL: Final = tuple(
    BY_NAME[name].changed(
        name=f"{name}, kept in memory",
        forgets=True,
        rules=Rules(without=frozenset({Guard.DURABLE_SUBMIT, Guard.DURABLE_CALL})),
    )
    for name in ("failover with a tool", "failover with two messages")
)
"""Without a durability a failover costs acknowledgements and repeated tools, and nothing else."""

NECESSARY: Final[tuple[tuple[str, tuple[Guard, ...]], ...]] = (
    ("join", (Guard.RECEIPT_FIRST,)),
    ("join", (Guard.BATCH_NUMBER,)),
    ("join", (Guard.COMMIT_REPLAY,)),
    ("join", (Guard.RELEASE_LOOKS,)),
    ("join", (Guard.REPLAY_SAYS_GONE,)),
    ("two sessions", (Guard.CLAIM_REPLAY,)),
    ("two sessions", (Guard.LIVE_LEASE,)),
    ("cancel and drain", (Guard.NOT_AFTER_CLAIM,)),
    ("go on without release", (Guard.NOT_AFTER_CLAIM, Guard.USED_NONCE)),
    ("go on without release", (Guard.REVISION,)),
    ("cancel and drain", (Guard.TAKE,)),
    ("cancel and drain", (Guard.GIVE_UP_NAMES_LEASE,)),
    ("cancel and drain", (Guard.DRAIN_RESOLVES_CLAIM,)),
    ("interrupt", (Guard.CONTROL_BARS_COMPLETION,)),
    ("interrupt", (Guard.RECEIPT_OF_CONTROL,)),
    ("interrupt", (Guard.NOT_AFTER_SUBMIT,)),
    ("interrupt", (Guard.CONTROL_NEEDS_TURN,)),
    ("interrupt", (Guard.END_SETTLES_CONTROL,)),
    ("wait, answer, interrupt, deadline", (Guard.PARK_LOOKS,)),
    ("wait, answer, interrupt, deadline", (Guard.PARK_KEEPS_TIMER,)),
    ("wait, answer, interrupt, deadline", (Guard.END_SETTLES_ANSWERS,)),
    ("wait, answer, interrupt, deadline", (Guard.ANSWER_NEEDS_WAIT,)),
    ("wait, answer, interrupt, deadline", (Guard.CLOSE_UNANSWERED,)),
    ("wait for a job without a deadline", (Guard.PARK_NEEDS_DEADLINE,)),
    ("two answers", (Guard.FIRST_ANSWER_WINS,)),
    ("full inbox while parked", (Guard.ANSWERS_EXEMPT,)),
    ("delete and create again", (Guard.DELETE_SETTLES,)),
    ("delete and create again", (Guard.DELETE_NAMES_LIFE, Guard.NOT_AFTER_SUBMIT)),
    ("delete and create again", (Guard.TOMBSTONE_COUNTS,)),
    ("delete and create again", (Guard.FLOOR_COUNTS,)),
    ("takeover queues again", (Guard.RECOVERY_NO_PROGRESS,)),
    ("poison", (Guard.REAP_SPARES_LIVE,)),
    ("poison", (Guard.REAP_COUNTS,)),
    ("failover with two messages", (Guard.DURABLE_SUBMIT,)),
    ("failover with a tool", (Guard.DURABLE_CALL,)),
    ("failover with two messages", (Guard.WHOLE_LEASE,)),
    ("failover with two messages", (Guard.REWOUND,)),
    ("drain only", (Guard.GIVE_UP_RESTORES,)),
    ("steer and cancel", (Guard.CANCEL_SPARES_HELD,)),
    ("latest", (Guard.LATEST_SPARES_HELD,)),
    ("scheduled", (Guard.RELEASE_KEEPS_TIMER,)),
    ("put off", (Guard.DEFER_KEEPS_TIMER,)),
    ("stopped and redriven", (Guard.REDRIVE_NAMES_NUMBER,)),
    ("stopped and redriven", (Guard.GIVING_UP_ENDS_TURN,)),
)
"""A scenario, and the guards without which it goes wrong."""

POLICY: Final = (
    ("join", Guard.EXPIRED_REFUSED),
    ("tool and interrupt", Guard.EXPIRED_REFUSED),
    ("cancel and drain", Guard.USED_NONCE),
    ("takeover queues again", Guard.GROUP),
)
"""Guards that nothing here needs. To refuse an expired lease that nobody has taken is a promise to
people; a nonce that is granted once matters only where a claim is not refused when it is late; a
group is parted only by a worker that is wrong."""
