"""The fast path: lets a request bypass the admission queue, so that it gets no queue ticket.

A request may bypass the queue if no request waits and the chosen replica accepts it. Every request
needs the choice of a replica; the fast path only adds one check.

Must never: take a lease, or create a ticket.
"""

from __future__ import annotations

from policies.contract import RequestView
from router.admission.pools import Pools
from router.dispatch.chooser import Chooser
from router.fleet.replica import Replica
from router.fleet.table.fleet import Fleet


def fast_path(
    fleet: Fleet,
    pools: Pools,
    chooser: Chooser,
    view: RequestView,
    rank: int,
    now: float,
    may_pass: bool,
) -> Replica | None:
    """Return the replica for a request of the class `rank` that needs no ticket. `None`: the
    request needs a ticket.

    `may_pass`: whether the concurrency limit of the request's API key allows another request.
    Raises RouterError if no replica serves the model and the request may not wait for one.
    """
    model, allowed = view.model, view.allowed
    fleet.eligibility.check(model, allowed)
    queue = pools.of(model or "")
    fit = fleet.serving.of(model, allowed)
    if fit and may_pass and queue.is_passable:
        replica = chooser.choose(view, fit, now)
        if queue.passes(replica, rank, now):
            return replica
    if not fit and now >= fleet.absent_since.of(model, allowed) + queue.absent_s(rank):
        # This call raises RouterError with the reason why no replica is fit.
        fleet.eligibility.replicas(model, allowed)
    return None
