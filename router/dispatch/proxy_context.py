"""What the requests of the proxy share beyond what a simulated router has.

Must never: hold anything that belongs to one request.
"""

from __future__ import annotations

from random import Random

from router.core.scheduling import Scheduler
from router.dispatch.abort import Aborter
from router.dispatch.chooser import Chooser
from router.dispatch.context import Context
from router.dispatch.continuation.store import Store
from router.dispatch.hedger import Hedger
from router.dispatch.queue_driver import QueueDriver
from router.dispatch.retry import Budget
from router.dispatch.rules import Rules
from router.dispatch.tenants import Tenants
from router.fleet.table import Fleet
from router.observe.metrics import Metrics


class ProxyContext(Context):
    """One proxy's."""

    __slots__ = ("aborter", "store", "tenants")

    def __init__(
        self,
        rules: Rules,
        fleet: Fleet,
        chooser: Chooser,
        hedger: Hedger,
        budget: Budget,
        metrics: Metrics,
        scheduler: Scheduler,
        queue: QueueDriver | None,
        rng: Random,
        tenants: Tenants,
        store: Store,
    ) -> None:
        super().__init__(rules, fleet, chooser, hedger, budget, metrics, scheduler, queue, rng)
        self.tenants = tenants
        self.store = store  # of what streams have said
        self.aborter: Aborter | None = None  # tells engines to stop; None: closing has to do
