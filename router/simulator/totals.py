"""What a simulation came to. Plain values, which are sent from process to process."""

from __future__ import annotations

from dataclasses import dataclass, field

from router.core.errors import Reason
from router.simulator.engine_totals import EngineTotals
from router.simulator.hedges import Hedges


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a run came to."""

    events: int  # of the clock
    requests: int
    ends: dict[Reason, int]  # requests by how they ended
    seconds: float  # simulated, up to the last end
    engines: tuple[EngineTotals, ...]  # by replica number
    polls: int  # of all routers
    retries: int
    ejections: int
    policy_errors: int  # choices that the policy failed to make
    hedges: Hedges  # of all routers
    # What their queues did, by class, 0 critical to 4 batch; empty: there are none.
    queues: dict[str, tuple[int, ...]] = field(default_factory=dict)
    evictions: int  # (block, replica) pairs that routers forgot for want of room
