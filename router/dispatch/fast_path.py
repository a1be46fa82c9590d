"""The fast path: no request waits, the policy's choice takes one more, and no ticket is needed.

A request that all is well with comes this way, so that it costs a choice, which it would make
anyway, and a look.

Must never: take a lease, or make a ticket.
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
    """Where a request of the class `rank` may go without a ticket; None: offer one. `may_pass`:
    its key's limit allows it.

    Raises RouterError where no replica serves its model and it may not wait for one.
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
        fleet.eligible(model)  # says why there is none
    return None
