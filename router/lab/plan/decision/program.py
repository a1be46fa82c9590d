"""The integer program of SageServe, solved with HiGHS (`scipy.optimize.milp`).

Source: arXiv 2502.14617, section 5, and its code (`long_term_allocation`). For each pool (model i,
region j, type k) the program chooses a whole number of replicas n, with s starts and o of the
present (old) replicas, so that

    minimise    sum of  cost_k n + start_k s
    subject to  low <= n <= high, s >= n - now, o <= n, o <= now  for each pool
                sum over i of n <= total_kj                       for each type and region
    and in each segment of the coming time, with shares y of the demand of (i, j) at (j', k):
                sum over j', k of y = 1                           all demand is served
                sum over k of y <= shift_jj'                      if j' is not j
                sum over j of load_ijk y <= utilisation n         in segments after the lead time
                sum over j of load_ijk y <= utilisation o         in segments before it

The published program has only one segment and one region. Only n is an integer variable; s and o
are then integers, too. If the demand cannot be served completely, the smallest possible shortage is
found first, and then the cheapest plan with this shortage.

All functions are pure, apart from the solver in `highs`. Must never: return numbers of replicas
that are not integers.

`Columns`, `Minimum`: minimises a mixed-integer linear program with HiGHS (`scipy.optimize.milp`).

scipy is imported at the first call. The search is limited by nodes, not by time, so that the same
program gives the same result. HiGHS 1.12 prints some lines to the standard output of the process,
where a JSON document may be written. So the standard output is discarded during the call. Must
never: depend on the meaning of the program.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Any, Final

from router.lab.extras import MissingExtra
from router.lab.plan.decision.problem import PlanError, Pool, PoolId, Problem, Segment, Solution
from router.lab.plan.observed import Place

GAP: Final = 5e-3  # the search stops at this relative distance from the best possible value
NODES: Final = 50  # maximum number of nodes of the search tree; small programs need one
_INFEASIBLE: Final = 2  # status of `milp` if no values keep all constraints


@dataclass(slots=True)
class Columns:
    """The variables and the constraints of a linear program."""

    costs: list[float] = field(default_factory=list)
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)  # 1: the variable is an integer; 0: it is not
    # Constraints: (factors by variable, lower bound, upper bound) of a weighted sum of variables.
    rows: list[tuple[dict[int, float], float, float]] = field(default_factory=list)

    def add(self, cost: float, low: float, high: float, *, whole: bool = False) -> int:
        """Add a variable; returns its number."""
        self.costs.append(cost)
        self.lows.append(low)
        self.highs.append(high)
        self.whole.append(int(whole))
        return len(self.costs) - 1


@dataclass(frozen=True, slots=True)
class Minimum:
    """The best values of the variables."""

    values: list[float]
    gap: float  # upper bound of the relative distance from the best possible value


def minimise(columns: Columns, costs: Sequence[float], highs: Sequence[float]) -> Minimum | None:
    """Find the values of the variables with the smallest total cost.

    `costs`, `highs`: used instead of the costs and upper bounds of `columns`. Returns None if no
    values keep all constraints. Raises MissingExtra, and PlanError if the search ends without a
    result.
    """
    try:
        from scipy.optimize import (  # type: ignore[import-untyped,unused-ignore]
            Bounds,
            LinearConstraint,
            milp,
        )
        from scipy.sparse import csr_array  # type: ignore[import-untyped,unused-ignore]
    except ImportError as err:
        raise MissingExtra(f"a plan needs {err.name or 'scipy'}: pip install '.[lab]'") from None
    constraints: Any = ()
    if columns.rows:
        numbers = [number for number, (row, _, _) in enumerate(columns.rows) for _ in row]
        places = [column for row, _, _ in columns.rows for column in row]
        values = [value for row, _, _ in columns.rows for value in row.values()]
        size = (len(columns.rows), len(columns.costs))
        constraints = LinearConstraint(
            csr_array((values, (numbers, places)), shape=size),
            [low for _, low, _ in columns.rows],
            [high for _, _, high in columns.rows],
        )
    with _quiet():
        found = milp(
            costs,
            integrality=columns.whole,
            bounds=Bounds(columns.lows, highs),
            constraints=constraints,
            options={"mip_rel_gap": GAP, "node_limit": NODES},
        )
    if found.x is None:
        if found.status == _INFEASIBLE:
            return None
        raise PlanError(f"the solver found no plan: {found.message}")
    return Minimum(found.x.tolist(), max(0.0, float(found.mip_gap or 0.0)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Discard what C code writes to the standard output of the process."""
    sys.stdout.flush()
    flush = _libc().fflush
    flush(None)
    kept = os.dup(1)
    try:
        os.dup2(_nowhere(), 1)
        yield
    finally:
        flush(None)  # the lines that HiGHS printed are still in C's buffer
        os.dup2(kept, 1)
        os.close(kept)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@cache
def _nowhere() -> int:
    """Return a file descriptor that discards what is written to it; it stays open."""
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


_MOVE: Final = 1e-2  # cost of moving a load, as a share of the cost of serving it
_SLACK: Final = 1e-6  # a smaller shortage, in replicas, counts as none


@dataclass(frozen=True, slots=True)
class _Flow:
    """A variable: the share of a place's demand that a pool serves in a segment."""

    segment: int
    place: Place
    pool: PoolId
    load: float
    column: int


@dataclass(slots=True)
class _Model:
    columns: Columns
    replicas: dict[PoolId, int]
    old: dict[PoolId, int]
    flows: list[_Flow]
    # Number of the variable, and the load of the whole demand.
    short: dict[tuple[int, Place], tuple[int, float]]


def solve(problem: Problem) -> Solution:
    """Return the cheapest plan. Raises PlanError and MissingExtra."""
    model = _model(problem)
    columns = model.columns
    # The first search allows no shortage. It usually finds a plan, and is then the only search.
    highs = list(columns.highs)
    for column, _ in model.short.values():
        highs[column] = 0.0
    found = minimise(columns, columns.costs, highs)
    if found is None:
        lacking = [0.0] * len(columns.costs)
        for column, load in model.short.values():
            lacking[column] = load
        least = minimise(columns, lacking, columns.highs)
        if least is None:
            raise PlanError("the solver found no plan, although one exists")
        amount = sum(cost * value for cost, value in zip(lacking, least.values, strict=True))
        columns.rows.append((dict(model.short.values()), -inf, amount + max(_SLACK, 1e-6 * amount)))
        found = minimise(columns, columns.costs, columns.highs) or least
    return _solution(problem, model, found)


def _model(problem: Problem) -> _Model:
    columns = Columns()
    model = _Model(columns, {}, {}, [], {})
    for pool in problem.pools:
        _add_pool(model, pool)
    _add_totals(problem, model)
    for number, segment in enumerate(problem.segments):
        _add_segment(problem, model, number, segment)
    return model


def _add_pool(model: _Model, pool: Pool) -> None:
    columns = model.columns
    replicas = columns.add(pool.cost, pool.low, pool.high, whole=True)
    model.replicas[pool.id] = replicas
    if pool.start > 0.0:
        starts = columns.add(pool.start, 0.0, max(0, pool.high - pool.now))
        columns.rows.append(({replicas: 1.0, starts: -1.0}, -inf, float(pool.now)))
    old = model.old[pool.id] = columns.add(0.0, 0.0, pool.now)
    columns.rows.append(({old: 1.0, replicas: -1.0}, -inf, 0.0))


def _add_totals(problem: Problem, model: _Model) -> None:
    for (kind, region), total in problem.totals.items():
        pools = [p for p in problem.pools if (p.id.type, p.id.place.region) == (kind, region)]
        if pools:
            # If the minimums of the pools exceed the total, the limit is their sum. A minimum
            # includes replicas that may not stop yet.
            most = max(total, sum(pool.low for pool in pools))
            row = {model.replicas[pool.id]: 1.0 for pool in pools}
            model.columns.rows.append((row, -inf, float(most)))


def _add_segment(problem: Problem, model: _Model, number: int, segment: Segment) -> None:
    columns = model.columns
    serving: dict[PoolId, dict[int, float]] = {pool.id: {} for pool in problem.pools}
    by_place: dict[Place, list[PoolId]] = {}
    for pool in problem.pools:
        by_place.setdefault(pool.id.place, []).append(pool.id)
    costs = {pool.id: pool.cost for pool in problem.pools}
    for place in dict.fromkeys(place for place, _ in segment.loads):
        whole: dict[int, float] = {}
        typical = 0.0
        for target, share in _targets(problem, place):
            moved: dict[int, float] = {}
            for pool_id in by_place.get(Place(place.model, target), ()):
                load = segment.loads.get((place, pool_id.type))
                if load is None:
                    continue
                typical = max(typical, load)
                cost = _MOVE * load * costs[pool_id] if target != place.region else 0.0
                column = columns.add(cost / len(problem.segments), 0.0, 1.0)
                model.flows.append(_Flow(number, place, pool_id, load, column))
                serving[pool_id][column] = load
                whole[column] = moved[column] = 1.0
            if share < 1.0 and moved:
                columns.rows.append((moved, -inf, share))
        column = columns.add(0.0, 0.0, 1.0)
        model.short[number, place] = (column, typical or 1.0)
        whole[column] = 1.0
        columns.rows.append((whole, 1.0, 1.0))
    for pool in problem.pools:
        if not serving[pool.id]:
            continue
        is_late = pool.id.type in segment.starting
        column = model.replicas[pool.id] if is_late else model.old[pool.id]
        columns.rows.append(({**serving[pool.id], column: -problem.utilisation}, -inf, 0.0))


def _targets(problem: Problem, place: Place) -> list[tuple[str, float]]:
    """Return the regions that may serve a place, each with the largest share of its demand."""
    return [
        (place.region, 1.0),
        *(
            (target, share)
            for (source, target), share in problem.shifts.items()
            if source == place.region
        ),
    ]


def _solution(problem: Problem, model: _Model, found: Minimum) -> Solution:
    values = found.values
    solution = Solution(
        used=[{} for _ in problem.segments],
        short=[{} for _ in problem.segments],
        gap=found.gap,
    )
    for pool in problem.pools:
        solution.replicas[pool.id] = round(values[model.replicas[pool.id]])
    shares: dict[tuple[int, Place, str], float] = {}
    for flow in model.flows:
        share = values[flow.column]
        used = solution.used[flow.segment]
        used[flow.pool] = used.get(flow.pool, 0.0) + share * flow.load
        region = flow.pool.place.region
        if region != flow.place.region:
            key = (flow.segment, flow.place, region)
            shares[key] = shares.get(key, 0.0) + share
    for (_, place, region), share in shares.items():
        if share > _SLACK:
            most = solution.shifted.get((place, region), 0.0)
            solution.shifted[place, region] = max(most, share)
    for (number, place), (column, load) in model.short.items():
        share = values[column]
        if share * load > 10.0 * _SLACK:
            solution.short[number][place] = share
    return solution
