"""The reactive rule: scales by the present utilisation, without a forecast. All functions are pure.

Above the upper threshold, the rule asks for enough replicas to bring the utilisation back to the
threshold, as the Horizontal Pod Autoscaler does. It starts replicas of the types that serve the
load at the least cost. Below the lower threshold, it stops one replica at a time, as SageServe's
reactive baseline does (arXiv 2502.14617). This replica is of the type that serves the load at the
highest cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from router.lab.plan.decision.solve import needed
from router.lab.plan.types_file import Reactive


@dataclass(frozen=True, slots=True)
class Scaled:
    """The replicas of one type that serve one model in one region."""

    type: str
    now: int
    load: float  # replicas of this type that the present demand keeps busy
    cost: float  # cost of one replica
    low: int = 0
    high: int = 1 << 31


def utilisation(pools: Sequence[Scaled]) -> float | None:
    """Return the busy share of the replicas; None: no replica runs.

    The demand is divided among the replicas in proportion to their speeds.
    """
    if not any(pool.now for pool in pools):
        return None
    if any(pool.load <= 0.0 for pool in pools):
        return 0.0
    return 1.0 / sum(pool.now / pool.load for pool in pools)


def reactive(pools: Sequence[Scaled], rule: Reactive) -> Mapping[str, int]:
    """Return the number of replicas of each type that the rule asks for."""
    counts = {pool.type: pool.now for pool in pools}
    ranked = sorted(pools, key=lambda pool: pool.cost * pool.load)
    busy = utilisation(pools)
    has_load = all(pool.load > 0.0 for pool in pools)
    # The capacity as a multiple of the present demand.
    capacity = sum(pool.now / pool.load for pool in pools) if has_load else 0.0
    if has_load and (busy is None or busy > rule.up):
        for pool in ranked:
            lacking = needed(max(0.0, 1.0 / rule.up - capacity) * pool.load, 1.0)
            more = min(lacking, max(0, pool.high - pool.now))
            counts[pool.type] += more
            capacity += more / pool.load
    elif busy is not None and busy < rule.down:
        for pool in reversed(ranked):
            # Stop no replica that the rule would start again.
            is_enough = not has_load or capacity - 1.0 / pool.load >= 1.0 / rule.up
            if pool.now > pool.low and is_enough:
                counts[pool.type] -= 1
                break
    return {
        pool.type: min(max(counts[pool.type], pool.low), max(pool.high, pool.low)) for pool in pools
    }
