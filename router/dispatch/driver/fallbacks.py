"""Decides whether a request that cannot be served goes to the next fallback of its model.

A fallback is another model, or a model in another pool (`models.*.fallbacks` in the configuration).
The conditions under which a request goes there are `models.*.fall_back_on`:

    no_replica   no replica of the model is up, or none in the allowed regions, or the replicas
                 answered 404 for the model although they list it
    queue_full   the queue is full, or all replicas are at their limits
    deadline     the first token would come too late
    failure      every attempt failed before any content

An error that the client caused is never followed by a fallback. After the first content no fallback
is possible. A fallback without a fit replica in the allowed regions is skipped, and so is one whose
context is too short for the request.

A request that two replicas lost may crash replicas, so it goes only to providers of other
companies. A request that may not be repeated goes to a fallback only if no engine has executed it.

The functions are pure. Must never: send a request, or change one.
"""

from __future__ import annotations

from typing import Final

from policies.allowed import with_context
from router.core.errors import Reason
from router.dispatch.driver.attempt_state import AttemptState, Commit
from router.dispatch.driver.request import Request
from router.dispatch.driver.retry import UNSENT
from router.fleet.context import TOO_LONG
from router.fleet.names import Target
from router.fleet.table.fleet import Fleet

NO_REPLICA: Final = "no_replica"
QUEUE_FULL: Final = "queue_full"
DEADLINE: Final = "deadline"
FAILURE: Final = "failure"

CONDITIONS: Final[dict[Reason, str]] = {
    Reason.NO_REPLICA: NO_REPLICA,
    Reason.MODEL_RESTARTING: NO_REPLICA,
    Reason.MODEL_NOT_FOUND: NO_REPLICA,
    Reason.MODEL_REFUSED: NO_REPLICA,
    Reason.REGION_NOT_ALLOWED: NO_REPLICA,
    Reason.FLEET_FULL: QUEUE_FULL,
    Reason.QUEUE_FULL: QUEUE_FULL,
    Reason.QUEUE_BYTES_FULL: QUEUE_FULL,
    Reason.QUEUE_EVICTED: QUEUE_FULL,
    Reason.QUEUE_TIMEOUT: QUEUE_FULL,
    Reason.QUEUE_TOO_LONG: DEADLINE,
    Reason.TTFT_UNREACHABLE: DEADLINE,
    Reason.CONNECT_FAILED: FAILURE,
    Reason.CONNECT_TIMEOUT: FAILURE,
    Reason.REPLICA_RESET: FAILURE,
    Reason.BAD_RESPONSE: FAILURE,
    Reason.TTFT_TIMEOUT: FAILURE,
    Reason.WHOLE_TIMEOUT: FAILURE,
    Reason.REPLICA_STALLED: FAILURE,
    Reason.EMPTY_STREAM: FAILURE,
    Reason.STREAM_ERROR: FAILURE,
    Reason.SERVER_ERROR: FAILURE,
    Reason.REPLICA_BUSY: FAILURE,
    Reason.CREDENTIAL_REFUSED: FAILURE,
}
# After these failures, the engine has not executed the request.
_NOT_EXECUTED: Final = UNSENT | {Reason.REPLICA_BUSY, Reason.CREDENTIAL_REFUSED}
_LOST_MOST: Final = 1


def next_fallback(request: Request, state: AttemptState, fleet: Fleet, reason: Reason) -> int:
    """Return the index of the fallback to which a request goes; below 0: the request must end.

    `reason`: why the request would end without a fallback.
    """
    named = request.named
    if named is None or request.next_fallback >= len(named.fallbacks):
        return -1
    condition = CONDITIONS.get(reason, "")
    if condition not in named.falls_back_on:
        return -1
    if state.over or state.commit == Commit.CONTENT or request.pinned is not None:
        return -1
    if condition == FAILURE and reason not in _NOT_EXECUTED and not request.route.repeatable:
        return -1
    may_crash = state.lost > _LOST_MOST
    for index in range(request.next_fallback, len(named.fallbacks)):
        if _is_served(named.fallbacks[index], request, fleet, may_crash):
            return index
    return -1


def _is_served(target: Target, request: Request, fleet: Fleet, may_crash: bool) -> bool:
    model, levels, view = fleet.models.routed_target(target), fleet.context_levels, request.view
    needed = levels.needed(view, model)
    if needed == TOO_LONG:
        return False
    found = fleet.serving.of(model, with_context(view.allowed, needed))
    return len(found) > 0 and (not may_crash or all(replica.is_external for replica in found))
