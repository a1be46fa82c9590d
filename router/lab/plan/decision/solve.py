"""Solves a problem: splits it into independent problems, and solves each of them.

A problem with a single pool is solved by the closed form, others by the integer program. Models are
independent unless a type has a maximum of replicas for all models together. Must never: give a plan
that breaks a limit.
"""

from __future__ import annotations

from dataclasses import replace

from router.lab.plan.decision import closed_form, program
from router.lab.plan.decision.problem import PlanError, Problem, Solution


def solve(problem: Problem) -> Solution:
    """Return the cheapest plan. Raises PlanError, and MissingExtra if a solver is missing."""
    for pool in problem.pools:
        if pool.low > pool.high:
            raise PlanError(f"{pool.id.place}: no number of replicas is within the limits")
    solution = Solution(used=[{} for _ in problem.segments], short=[{} for _ in problem.segments])
    for part in parts(problem):
        found = closed_form.solve(part) if closed_form.applies(part) else program.solve(part)
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
