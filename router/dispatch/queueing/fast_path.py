"""The fast path: sends a request without a ticket if no request waits and the replica accepts it.

The fast path only adds one check to the choice of a replica, which every request needs.

Must never: take a lease, or create a ticket.
"""

from __future__ import annotations

from policies.contract import RequestView
from router.admission.pools import Pools
from router.dispatch.chooser import Chooser
from router.fleet.replica import Replica
from router.fleet.table import Fleet


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

    `may_pass`: the limit of the request's key allows it. Raises RouterError if no replica serves
    the model and the request may not wait for one.
    """
    model = view.model
    fleet.check(model)
    queue = pools.of(model or "")
    fit = fleet.serving(model)
    if fit and may_pass and queue.is_passable:
        replica = chooser.choose(view, fit)
        if queue.passes(replica, rank, now):
            return replica
    if not fit and now >= fleet.absent_since(model) + queue.absent_s(rank):
        fleet.eligible(model)  # This call raises RouterError with the reason why no replica is fit.
    return None
