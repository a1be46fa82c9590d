"""Computes the share of a place's slots that class batch may use until the next plan.

The share leaves room for the upper bound of the forecast demand, with the demand that other regions
move to the place. The busiest coming segment decides, so the share falls before a rush: as soon as
the rush is within the time that the plan must last. The router applies the share as
`classes.batch.slots`. All functions are pure.
"""

from __future__ import annotations

from router.lab.plan.decision.problem import Problem, Solution
from router.lab.plan.observed import Place


def batch_share(problem: Problem, solution: Solution, place: Place) -> float:
    """Return the share, from 0 to 1; 0 if no replica serves, or if demand is not served."""
    pools = [pool for pool in problem.pools if pool.id.place == place]
    found = 1.0
    for number, segment in enumerate(problem.segments):
        serving = busy = 0.0
        for pool in pools:
            count = solution.replicas[pool.id]
            serving += count if pool.id.type in segment.starting else min(count, pool.now)
            busy += solution.used[number].get(pool.id, 0.0)
        if serving <= 0.0 or solution.short[number].get(place, 0.0) > 0.0:
            return 0.0
        found = min(found, 1.0 - busy / serving)
    return max(0.0, found)
