"""Derives the advice from the observed demand, the forecasts and the types of replicas.

A place is a model in a region. If the forecast of a place is not trusted, the place gets the
replicas that the reactive rule asks for; the integer program plans all other places. If the present
replicas are unknown, only the demand decides: costs of starts, lead times and cool-downs are
ignored. All functions are pure.

`binding`: finds the constraint that decides the number of replicas of a place (a model in a
region).

If one replica less would still serve the demand within the limits, the demand is not the
constraint. Then a minimum, or a reason why no replica may stop, keeps the replica. If not all
demand is served, the lead time, a maximum or a total prevents more replicas. All functions are
pure.

`batch_share`: computes the share of a place's slots that class batch may use until the next plan.

The share leaves room for the upper bound of the forecast demand, with the demand that other regions
move to the place. The busiest coming segment decides, so the share falls before a rush: as soon as
the rush is within the time that the plan must last. The router applies the share as
`classes.batch.slots`. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from router.lab.plan.decision.present import (
    COOLDOWN,
    QUEUE,
    Present,
    loaded,
    planned_windows,
    present,
    segments,
)
from router.lab.plan.decision.problem import PlanError, Pool, PoolId, Problem, Solution
from router.lab.plan.decision.reactive import reactive
from router.lab.plan.decision.solve import solve
from router.lab.plan.forecasts.method import Forecast
from router.lab.plan.observed import Observed, Place
from router.lab.plan.types_file import ReplicaType, Types


@dataclass(frozen=True, slots=True)
class PoolAdvice:
    """The advice for the replicas of one type that serve a model in a region."""

    id: PoolId
    now: int | None  # number of running replicas; None: unknown
    planned: int
    reactive: int | None  # number by the reactive rule; None: the present number is unknown
    cost: float  # cost of one replica per hour
    start: float  # cost of one start

    @property
    def matters(self) -> bool:
        """Whether there is a replica now, in the plan, or by the reactive rule."""
        return bool(self.now or self.planned or self.reactive)


@dataclass(frozen=True, slots=True)
class PlaceAdvice:
    """The advice for a model in a region."""

    place: Place
    forecast: Forecast
    prompt_share: float  # prompt tokens as a share of the forecast tokens
    binding: str  # the constraint that decides the number of replicas
    short: float  # share of the demand that is not served within the limits, at the worst time
    shifted: Mapping[str, float]  # share of the demand that is served in another region, by region
    # Tokens/s that the planned replicas serve at the utilisation limit, with this share of prompt
    # tokens.
    capacity: float
    # Highest tokens/s that the plan must serve: the forecast demand and the waiting requests.
    peak: float
    # True: no replica was full when its throughput was measured. Then the capacity is a lower
    # bound, and no more replicas are advised than run now.
    is_at_least: bool
    # Utilisation of the present replicas in the last window; None: unknown.
    utilisation: float | None
    # The share of the slots that class batch may use until the next plan; None: the forecast is not
    # trusted.
    batch_share: float | None


@dataclass(frozen=True, slots=True)
class Advice:
    """The whole plan: the advice for all pools and all models and regions."""

    pools: Sequence[PoolAdvice]
    places: Sequence[PlaceAdvice]
    period_s: float
    window_s: float
    now_s: float  # end of the last window, on the clock of the source
    gap: float  # the cost is above the lowest possible cost by at most this share
    notes: Sequence[str]

    def cost(self, of: str) -> float | None:
        """Return the cost per hour of the replicas; None: their number is unknown.

        `of`: "planned", "reactive" or "now".
        """
        found = 0.0
        for pool in self.pools:
            count: int | None = getattr(pool, of)
            if count is None:
                return None
            found += count * pool.cost
        return found

    def start_cost(self, of: str) -> float | None:
        """Return the cost of starting the missing replicas; None: their number is unknown.

        `of`: "planned" or "reactive".
        """
        found = 0.0
        for pool in self.pools:
            count: int | None = getattr(pool, of)
            if count is None or pool.now is None:
                return None
            found += max(0, count - pool.now) * pool.start
        return found


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


AT_LEAST = "no full replica"  # the binding constraint if the throughput is only a lower bound
REACTIVE = "reactive rule"  # the binding constraint of places for which the reactive rule decides

Counts = Mapping[str, int]  # number of replicas by type


def advise(types: Types, observed: Observed, forecasts: Mapping[Place, Forecast]) -> Advice:
    """Return the plan for the places of `forecasts`, and for places that may serve their demand.

    Raises PlanError, and MissingExtra if a solver is needed and missing.
    """
    states = {place: present(types, observed, place) for place in _places(types, forecasts)}
    notes = [
        *observed.notes,
        *(
            f"no type serves {place}: it is not planned"
            for place, state in states.items()
            if not state.types
        ),
    ]
    states = {place: state for place, state in states.items() if state.types}
    if forecasts and not states:
        raise PlanError(
            f"no type serves any model of the demand: it has {', '.join(map(str, forecasts))}; "
            f"the types have the regions {', '.join(map(repr, types.regions))} and the models "
            f"{', '.join(dict.fromkeys(name for one in types.types for name in one.models))}"
        )
    rules = {place: reactive(state.pools(), types.reactive) for place, state in states.items()}
    bars = {
        place: state.bar(
            types, forecasts[place].high if place in forecasts else (), observed.window_s
        )
        for place, state in states.items()
    }
    fixed = {
        place: _kept(rules[place], state, bars[place])
        for place, state in states.items()
        if place in forecasts and forecasts[place].distrust
    }
    problem = _problem(types, observed, forecasts, states, fixed, bars)
    solution = solve(problem)
    planned = {
        place: fixed.get(place)
        or {one.name: solution.replicas[PoolId(place, one.name)] for one in state.types}
        for place, state in states.items()
    }
    places = []
    for place, state in states.items():
        if place in forecasts:
            reason, share = REACTIVE, None
            if place not in fixed:
                minimums = {one.name: state.limits(one)[0] for one in state.types}
                reason = binding(problem, solution, place, minimums, bars[place])
                if reason == MAXIMUM and state.is_at_least:
                    reason = AT_LEAST
                share = batch_share(problem, solution, place)
            known = forecasts[place], planned[place], reason, share
            places.append(_place(types, observed, state, *known, solution))
    return Advice(
        pools=[
            pool
            for place, state in states.items()
            for one in state.types
            if (pool := _pool_advice(state, one, planned[place], rules[place])).matters
        ],
        places=places,
        period_s=types.period_s,
        window_s=observed.window_s,
        now_s=observed.now_s,
        gap=solution.gap,
        notes=notes,
    )


def _kept(rule: Counts, state: Present, bar: str) -> Counts:
    """Return the replicas that the reactive rule asks for.

    But no replica is stopped while requests wait, or during the cool-down.
    """
    if bar not in (QUEUE, COOLDOWN):
        return rule
    return {
        one.name: max(rule[one.name], min(state.count(one.name), state.limits(one)[1]))
        for one in state.types
    }


def _places(types: Types, forecasts: Mapping[Place, Forecast]) -> list[Place]:
    """Return the places with demand, and the places to which their demand may move."""
    targets = {
        Place(place.model, shift.target)
        for place in forecasts
        for shift in types.shift
        if shift.source == place.region
    }
    return sorted({*forecasts, *targets})


def _problem(
    types: Types,
    observed: Observed,
    forecasts: Mapping[Place, Forecast],
    states: Mapping[Place, Present],
    fixed: Mapping[Place, Counts],
    bars: Mapping[Place, str],
) -> Problem:
    tokens = {
        place: forecasts[place].high
        for place in states
        if place in forecasts and place not in fixed
    }
    totals = {
        (one.name, region): max(
            0,
            one.total
            - sum(
                counts.get(one.name, 0) for place, counts in fixed.items() if place.region == region
            ),
        )
        for one in types.types
        if one.total is not None
        for region in one.regions
    }
    is_known = observed.running is not None
    return Problem(
        pools=tuple(
            _pool(types, state, one, bars[place], is_known=is_known)
            for place, state in states.items()
            if place not in fixed
            for one in state.types
        ),
        segments=tuple(
            loaded(each, tokens, states, observed.window_s)
            for each in segments(types, observed.window_s, has_leads=is_known)
        ),
        utilisation=types.utilisation,
        shifts={(shift.source, shift.target): shift.share for shift in types.shift},
        totals=totals,
    )


def _pool(types: Types, state: Present, one: ReplicaType, bar: str, *, is_known: bool) -> Pool:
    low, high = state.limits(one)
    now = state.count(one.name)
    if bar:
        low = min(max(low, now), high)
    return Pool(
        PoolId(state.place, one.name),
        now,
        low,
        high,
        one.cost * types.period_s / 3600.0,
        one.per_start if is_known else 0.0,
    )


def _pool_advice(state: Present, one: ReplicaType, planned: Counts, rule: Counts) -> PoolAdvice:
    is_known = state.counts is not None
    return PoolAdvice(
        id=PoolId(state.place, one.name),
        now=state.count(one.name) if is_known else None,
        planned=planned[one.name],
        reactive=rule[one.name] if is_known else None,
        cost=one.cost,
        start=one.per_start,
    )


def _place(
    types: Types,
    observed: Observed,
    state: Present,
    forecast: Forecast,
    planned: Counts,
    reason: str,
    share: float | None,
    solution: Solution,
) -> PlaceAdvice:
    ahead = forecast.high[: planned_windows(types, observed.window_s)]
    return PlaceAdvice(
        place=state.place,
        forecast=forecast,
        prompt_share=state.prompt_share,
        binding=reason,
        short=0.0
        if state.is_at_least
        else max((short.get(state.place, 0.0) for short in solution.short), default=0.0),
        shifted={
            region: share
            for (place, region), share in solution.shifted.items()
            if place == state.place
        },
        capacity=types.utilisation * state.capacity(planned),
        peak=max(ahead, default=0.0) / observed.window_s + state.waiting_per_s,
        utilisation=state.utilisation,
        is_at_least=state.is_at_least,
        batch_share=share,
    )
