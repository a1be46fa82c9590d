"""May this attempt be followed by another? One table, and a budget against storms.

What was sent, over which kind of connection, decides. Nothing is repeated once content of it has
reached the client; a continuation (`continuation/`) asks another replica for the rest only.

    what happened                          connection   verdict
    could not connect                      -            elsewhere, free: nothing was sent
    out of files or ports here             -            no: elsewhere it would fail as well
    lost, no byte of the response yet      reused       once more here, on a new connection
    lost                                   new          elsewhere if repeatable, on the budget;
                                                        free if the replica is known to be dead
    429 or 503                             -            elsewhere, on the budget
    a stream with an error or nothing in   -            elsewhere if repeatable, on the budget
    it, before any content
    everything else                        -            no

Why a budget and not only a maximum: when a fleet is slow because it is overloaded, three attempts
for every request are three times the load. Retries under way may be a fifth of all requests under
way (Envoy's numbers), and at least three.
"""

from __future__ import annotations

from enum import IntEnum

from router.config.model import Retry as Rules
from router.core.errors import Reason


class Verdict(IntEnum):
    NO = 0
    HERE = 1  # the same replica, a new connection
    ELSEWHERE = 2  # another replica, nothing to pay
    BUDGET = 3  # another replica, if the budget allows


UNSENT = frozenset({Reason.CONNECT_FAILED, Reason.CONNECT_TIMEOUT})
# Errors that an engine tells, and that another replica need not have.
PASSING = frozenset({Reason.REPLICA_BUSY, Reason.STREAM_ERROR})
LOST = frozenset({Reason.REPLICA_RESET, Reason.EMPTY_STREAM, Reason.STREAM_ERROR})


def judge(
    reason: Reason, *, reused: bool, received: bool, repeatable: bool, known_dead: bool
) -> Verdict:
    """The table above. `received`: a byte of the response had come, `repeatable`: of the route."""
    if reason in UNSENT:
        return Verdict.ELSEWHERE
    if reason is Reason.REPLICA_BUSY:
        return Verdict.BUDGET
    if reason not in LOST:
        return Verdict.NO
    if reason is Reason.REPLICA_RESET and reused and not received:
        return Verdict.HERE
    if not repeatable:
        return Verdict.NO
    return Verdict.ELSEWHERE if known_dead else Verdict.BUDGET


class Budget:
    """How many retries may be under way at once."""

    __slots__ = ("_minimum", "_share", "requests", "retries")

    def __init__(self, rules: Rules) -> None:
        self._share = rules.budget
        self._minimum = rules.budget_min
        self.requests = 0  # under way
        self.retries = 0  # of them, those that are being retried on the budget

    def adopt(self, rules: Rules) -> None:
        """New rules from a reload; what is under way counts on."""
        self._share = rules.budget
        self._minimum = rules.budget_min

    def take(self) -> bool:
        """Try to take one retry; give it back with `give`."""
        if self.retries >= max(self._minimum, self._share * self.requests):
            return False
        self.retries += 1
        return True

    def give(self) -> None:
        self.retries -= 1
