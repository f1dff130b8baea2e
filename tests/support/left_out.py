"""What a target cannot express: the one table of tests that do not run on it, with the reasons."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LeftOut:
    """A test that does not run on some targets."""

    targets: tuple[str, ...]
    test: str
    """The name of its function, or of its module for all of that one."""
    reason: str


LEFT_OUT = (
    LeftOut(("fakeredis",), "tests.store.test_full_memory", "it has no limit of its memory"),
    LeftOut(
        ("fakeredis", "redis", "other", "cluster", "sentinel", "losing"),
        "test_no_script_leaves_anything_to_find",
        "scripts leave the same everywhere, and to look at all of it takes long",
    ),
    LeftOut(
        ("losing",),
        "test_a_batch_keeps_its_order_although_its_script_comes_and_goes",
        "it is about one pipeline, and here each script is sent alone",
    ),
    LeftOut(
        ("losing",),
        "test_settled_receipts_are_forgotten_by_age_and_open_ones_never",
        "it is about a purge that stops at its limit, where a repeat rightly goes on",
    ),
    LeftOut(
        ("losing",),
        "test_a_lease_of_no_time_is_free_at_once",
        "the lease is over before the repeat comes",
    ),
    LeftOut(
        ("losing",),
        "test_every_key_is_there_after_everything_that_can_happen",
        "it runs some thousand scripts, each of which runs behind the losses elsewhere",
    ),
    LeftOut(
        ("losing",),
        "test_nothing_is_left_once_all_is_deleted_and_purged",
        "it runs some thousand scripts, each of which runs behind the losses elsewhere",
    ),
    LeftOut(
        ("losing",),
        "test_more_than_are_read_at_once_are_all_served",
        "each is given up after a while, and there scripts are sent one at a time",
    ),
    LeftOut(
        ("losing",),
        "tests.store.test_races",
        "scripts are sent one at a time there, which is no race",
    ),
    LeftOut(
        ("losing",),
        "tests.store.test_full_memory",
        "what the server refuses by itself was not run, so that nothing is repeated",
    ),
)


def why_left_out(target: str, *names: str) -> str | None:
    """The reason why the test of a function and a module does not run on a target, or None."""
    return next(
        (one.reason for one in LEFT_OUT if target in one.targets and one.test in names), None
    )
