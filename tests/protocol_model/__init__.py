"""An executable model of the protocol, searched exhaustively within bounds.

`session`, `producer_scripts`, `worker_scripts` and `commit_script` say in pure functions what the
Lua scripts do to one session. `search` lets workers, producers, a network that delays, loses and
repeats, crashes, pauses and failovers do everything in every order, and holds each state against
the `invariants`. A scenario that runs through is a proof within its bounds; a run with one guard
removed must end in a counterexample, which proves that the guard is needed.

A change of a script's rule is first a change here. `tests/store/test_state_machine.py` drives the
real scripts against these functions, so neither can move without the other.

Time is abstract: a lease is live until a step lets it expire, an input or a deadline is ahead or
has passed. Not modelled: sizes, events and their numbers, the fair order, routes, outbox rows.
"""
