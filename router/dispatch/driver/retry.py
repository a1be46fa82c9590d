"""Decides whether another attempt may follow a failed one, by a table and a budget for retries.

The decision depends on what was sent and over which kind of connection. "Elsewhere" means at
another replica. A retry "on the budget" needs a place in the retry budget; a "free" retry needs
none. After content has reached the client, the request is not repeated; another replica is
asked only for the rest (`resumption.py`).

    what happened                          connection   verdict
    could not connect                      -            elsewhere, free: nothing was sent
    the replica closed the connection      new          elsewhere, free: nothing was sent
    before the request was sent
    a reload has changed the regions       -            elsewhere, free: nothing was sent
    before the request was sent
    the router has no free file or port    -            no: elsewhere it would fail as well
    lost, no byte of the response yet      reused       same replica once, on a new connection
    lost                                   new          elsewhere if repeatable, on the budget;
                                                        free if the replica is known to be dead
    the replica was ejected or went down,  -            as if lost on a new connection; without
    no content yet, no sign of work                     another replica, the attempt stays
    429 or 503                             -            elsewhere; free if another replica has
                                                        not refused lately, else on the budget
    404 for a model that the replica       -            elsewhere, free: the engine did nothing,
    lists: it may have restarted                        and its list is read again at once
    the router's own credential is         -            elsewhere, free: nothing was executed
    refused (401, 403 or 407)
    any other error answer that is         -            elsewhere, once, free; after a 5xx, and
    compared (`fleet/error_answers.py`)                 after a 200 with an error body, if
                                                        repeatable and on the budget
    the stream contains an error before    -            elsewhere if repeatable, on the budget
    any content, or ends without content
    everything else                        -            no

If the new connection to the same replica fails, its process died with the request, so the attempt
counts as lost on a new connection. A request that was lost at two replicas is not sent again. A
body that was in flight at the deaths of two processes is refused (`fleet/suspects.py`).

A maximum of attempts is not enough: if a fleet is overloaded, three attempts for every request
triple the load. So a budget limits the retries that run at once to a fifth of all running requests,
or to three if that is more (as in Envoy).
"""

from __future__ import annotations

from enum import IntEnum

from router.config.model import Retry as Rules
from router.core.errors import Reason


class RetryChoice(IntEnum):
    NO = 0
    HERE = 1  # Send again to the same replica, over a new connection.
    ELSEWHERE = 2  # Send to another replica, without using the retry budget.
    BUDGET = 3  # Send to another replica, if the retry budget allows it.


UNSENT = frozenset({Reason.CONNECT_FAILED, Reason.CONNECT_TIMEOUT})
# No engine has executed the request.
UNEXECUTED = UNSENT | {
    Reason.REGION_NOT_ALLOWED,
    Reason.CREDENTIAL_REFUSED,
    Reason.MODEL_REFUSED,
}
# Errors of an engine after which another replica may succeed.
PASSING = frozenset({Reason.REPLICA_BUSY, Reason.STREAM_ERROR, Reason.MODEL_REFUSED})
LOST = frozenset(
    {
        Reason.REPLICA_RESET,
        Reason.REPLICA_STALLED,
        Reason.EMPTY_STREAM,
        Reason.STREAM_ERROR,
    }
)


def judge(
    reason: Reason, *, unread: bool = False, repeatable: bool, known_dead: bool
) -> RetryChoice:
    """Apply the table in the module's docstring.

    `unread`: a reused connection was lost before any byte of the response arrived, so the replica
    has probably closed it before it read the request. `repeatable`: repeating a request of this
    route is safe.
    """
    if reason in UNEXECUTED:
        return RetryChoice.ELSEWHERE
    if reason is Reason.REPLICA_BUSY:
        return RetryChoice.BUDGET
    if reason not in LOST:
        return RetryChoice.NO
    if reason is Reason.REPLICA_RESET and unread:
        return RetryChoice.HERE
    if not repeatable:
        return RetryChoice.NO
    return RetryChoice.ELSEWHERE if known_dead else RetryChoice.BUDGET


class Budget:
    """Limits how many retries may run at once."""

    __slots__ = ("requests", "retries", "rules")

    def __init__(self, rules: Rules) -> None:
        self.rules = rules  # A reload replaces them.
        # Number of requests in progress. As in Envoy, requests that wait for a replica count.
        self.requests = 0
        self.retries = 0  # Number of these requests with a retry that needed the budget.

    def take(self) -> bool:
        """Count one more running retry. Returns False if the limit does not allow it."""
        if self.retries >= max(self.rules.budget_min, self.rules.budget * self.requests):
            return False
        self.retries += 1
        return True

    def give(self) -> None:
        self.retries -= 1
