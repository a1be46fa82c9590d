"""The plan of one pool that shares nothing: the demand divided by the throughput, rounded up. Pure.

The integer program reduces to this for one model, one region and one type. Replicas before the lead
time cannot be added, but they can be kept.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from router.plan.decision.problem import Problem, Solution

TOLERANCE: Final = 1e-6  # replicas; a need of 3.0000001 is a need of 3


def applies(problem: Problem) -> bool:
    """Whether there is a single pool, without a shift or a total."""
    return len(problem.pools) == 1 and not problem.shifts and not problem.totals


def solve(problem: Problem) -> Solution:
    (pool,) = problem.pools
    key = (pool.id.place, pool.id.type)
    needs = [needed(each.loads.get(key, 0.0), problem.utilisation) for each in problem.segments]
    started = [pool.id.type in each.starting for each in problem.segments]
    early = max((n for n, has in zip(needs, started, strict=True) if not has), default=0)
    late = max((n for n, has in zip(needs, started, strict=True) if has), default=0)
    count = min(max(late, min(pool.now, early), pool.low), pool.high)
    solution = Solution({pool.id: count})
    for each, has in zip(problem.segments, started, strict=True):
        load = each.loads.get(key, 0.0)
        serving = count if has else min(count, pool.now)
        room = serving * problem.utilisation
        is_short = load > room + TOLERANCE
        solution.used.append({pool.id: min(load, room)})
        solution.short.append({pool.id.place: 1.0 - room / load} if is_short else {})
    return solution


def needed(load: float, utilisation: float) -> int:
    """The replicas for a load."""
    return max(0, ceil(load / utilisation - TOLERANCE))
