"""Finds the constraint that decides the number of replicas of a place (a model in a region).

If one replica less would still serve the demand within the limits, the demand is not the
constraint. Then a minimum, or a reason why no replica may stop, keeps the replica. If not all
demand is served, the lead time, a maximum or a total prevents more replicas. All functions are
pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from router.lab.plan.decision.problem import Pool, Problem, Solution
from router.lab.plan.observed import Place

DEMAND, MINIMUM, MAXIMUM = "demand", "minimum", "maximum"
LEAD, NOTHING = "lead time", "no demand"
_TOLERANCE: Final = 1e-6


def binding(
    problem: Problem, solution: Solution, place: Place, minimums: dict[str, int], bar: str
) -> str:
    """Return the constraint.

    `minimums`: the minimum number of replicas by type; `bar`: why no replica of the place may stop,
    or "".
    """
    pools = [pool for pool in problem.pools if pool.id.place == place]
    late = [number for number, short in enumerate(solution.short) if short.get(place, 0.0) > 0.0]
    if late:
        return _limit(problem, solution, pools, late)
    idle = [pool for pool in pools if _is_idle(problem, solution, pool)]
    for pool in idle:
        if solution.replicas[pool.id] <= minimums[pool.id.type]:
            return MINIMUM
        if bar and solution.replicas[pool.id] <= pool.now:
            return bar
    if not any(solution.replicas[pool.id] for pool in pools):
        is_moved = any(source == place for source, _ in solution.shifted)
        return DEMAND if is_moved else NOTHING
    return DEMAND


def _limit(problem: Problem, solution: Solution, pools: Sequence[Pool], late: Sequence[int]) -> str:
    """Return why there are not more replicas in the segments with unserved demand."""
    startable = [
        pool
        for pool in pools
        if any(pool.id.type in problem.segments[number].starting for number in late)
    ]
    if not startable:
        return LEAD
    for pool in startable:
        total = problem.totals.get((pool.id.type, pool.id.place.region))
        if solution.replicas[pool.id] < pool.high and total is not None:
            return f"total of {pool.id.type}"
    return MAXIMUM


def _is_idle(problem: Problem, solution: Solution, pool: Pool) -> bool:
    """Whether one replica less would serve the demand of every segment."""
    count = solution.replicas[pool.id]
    if not count:
        return False
    for segment, used in zip(problem.segments, solution.used, strict=True):
        serving = count if pool.id.type in segment.starting else min(count, pool.now)
        if used.get(pool.id, 0.0) > problem.utilisation * (serving - 1) + _TOLERANCE:
            return False
    return True
