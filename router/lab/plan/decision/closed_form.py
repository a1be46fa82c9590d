"""Plans a single pool: the demand divided by the throughput, rounded up.

A pool is the replicas of one type that serve one model in one region. The integer program gives the
same result if there is only one pool. Before the lead time has passed, replicas cannot be added,
but running replicas can be kept. All functions are pure.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from router.lab.plan.decision.problem import Problem, Solution

TOLERANCE: Final = 1e-6  # in replicas: a need of 3.0000001 counts as 3


def applies(problem: Problem) -> bool:
    """Whether there is a single pool, no demand may move, and no type has a total."""
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
    """Return the number of replicas for a load."""
    return max(0, ceil(load / utilisation - TOLERANCE))
