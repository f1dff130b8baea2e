"""Run a request: which script it is for, and what it is called."""

from __future__ import annotations

from tests.protocol_model.commit_script import commit
from tests.protocol_model.operator_scripts import redrive, stop
from tests.protocol_model.producer_scripts import Answered, cancel, delete, submit
from tests.protocol_model.requests import (
    Append,
    Cancel,
    Claim,
    Commit,
    Delete,
    GiveUp,
    Redrive,
    Request,
    Rules,
    Stop,
    Submit,
)
from tests.protocol_model.session import Session
from tests.protocol_model.worker_scripts import append, claim, give_up

GRANTING = (Submit, Cancel, Delete, Stop, Redrive, Claim)
"""Requests with a not-after."""


def run_script(session: Session, asked: Request, rules: Rules) -> Answered:
    """The script of a request."""
    match asked:
        case Submit():
            return submit(session, asked, rules)
        case Cancel():
            return cancel(session, asked, rules)
        case Delete():
            return delete(session, asked, rules)
        case Stop():
            return stop(session, asked, rules)
        case Redrive():
            return redrive(session, asked, rules)
        case Claim():
            return claim(session, asked, rules)
        case Append():
            return append(session, asked, rules)
        case Commit():
            return commit(session, asked, rules)
        case GiveUp():
            return give_up(session, asked, rules)


def name_of(asked: Request) -> str:
    match asked:
        case Commit():
            return f"commit {asked.kind} {asked.finish or asked.next}"
        case Submit():
            return asked.cls if asked.cls != "turn" else asked.policy
        case Redrive(everything=True):
            return "dead_letter"
        case _:
            return type(asked).__name__.lower()
