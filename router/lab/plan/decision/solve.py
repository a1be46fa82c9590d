"""Solves a problem: splits it into independent problems, and solves each of them.

A problem with a single pool is solved by the closed form, others by the integer program. Models are
independent unless a type has a maximum of replicas for all models together. Must never: give a plan
that breaks a limit.

`applies`, `closed_form`, `needed`: plans a single pool: the demand divided by the throughput,
rounded up.

A pool is the replicas of one type that serve one model in one region. The integer program gives the
same result if there is only one pool. Before the lead time has passed, replicas cannot be added,
but running replicas can be kept. All functions are pure.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Final

from router.lab.plan.decision import program
from router.lab.plan.decision.problem import PlanError, Problem, Solution

TOLERANCE: Final = 1e-6  # in replicas: a need of 3.0000001 counts as 3


def applies(problem: Problem) -> bool:
    """Whether there is a single pool, no demand may move, and no type has a total."""
    return len(problem.pools) == 1 and not problem.shifts and not problem.totals


def closed_form(problem: Problem) -> Solution:
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


def solve(problem: Problem) -> Solution:
    """Return the cheapest plan. Raises PlanError, and MissingExtra if a solver is missing."""
    for pool in problem.pools:
        if pool.low > pool.high:
            raise PlanError(f"{pool.id.place}: no number of replicas is within the limits")
    solution = Solution(used=[{} for _ in problem.segments], short=[{} for _ in problem.segments])
    for part in parts(problem):
        found = closed_form(part) if applies(part) else program.solve(part)
        solution.add(found)
    return solution


def parts(problem: Problem) -> list[Problem]:
    """Split the problem into independent problems, which have all its pools together."""
    if problem.totals:
        return [problem] if problem.pools else []
    places = {pool.id.place for pool in problem.pools} | set(problem.places)
    if not problem.shifts:
        groups = [{place} for place in sorted(places)]
    else:
        models = sorted({place.model for place in places})
        groups = [{place for place in places if place.model == model} for model in models]
    return [
        replace(
            problem,
            pools=tuple(pool for pool in problem.pools if pool.id.place in group),
            segments=tuple(
                replace(
                    each, loads={key: load for key, load in each.loads.items() if key[0] in group}
                )
                for each in problem.segments
            ),
        )
        for group in groups
    ]
