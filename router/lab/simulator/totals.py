"""The totals of a simulation. They contain only simple values, because they are pickled."""

from __future__ import annotations

from dataclasses import dataclass, field

from router.core.errors import Reason
from router.lab.simulator.engine_totals import EngineTotals
from router.lab.simulator.hedges import Hedges


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The totals of one run, over all routers."""

    events: int  # number of events of the virtual clock
    requests: int
    ends: dict[Reason, int]  # number of requests by the reason of their end
    seconds: float  # simulated time until the last request ended
    engines: tuple[EngineTotals, ...]  # the totals of each replica, by replica number
    polls: int
    retries: int
    ejections: int
    policy_errors: int  # failed calls of the policy: exceptions and invalid choices
    hedges: Hedges
    # Counts of the queues by name. Each value has a count for each class, from 0 (critical) to 4
    # (batch). Empty: no router has a queue.
    queues: dict[str, tuple[int, ...]] = field(default_factory=dict)
    evictions: int  # (block, replica) pairs evicted from the routers' prefix indexes
