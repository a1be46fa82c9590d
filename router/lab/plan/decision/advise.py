"""Derives the advice from the observed demand, the forecasts and the types of replicas.

A place is a model in a region. If the forecast of a place is not trusted, the place gets the
replicas that the reactive rule asks for; the integer program plans all other places. If the present
replicas are unknown, only the demand decides: costs of starts, lead times and cool-downs are
ignored. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from router.lab.plan.decision.advice import Advice, PlaceAdvice, PoolAdvice
from router.lab.plan.decision.batch_share import batch_share
from router.lab.plan.decision.binding import MAXIMUM, binding
from router.lab.plan.decision.demand_ahead import loaded, planned_windows, segments
from router.lab.plan.decision.present import COOLDOWN, QUEUE, Present, present
from router.lab.plan.decision.problem import PlanError, Pool, PoolId, Problem, Solution
from router.lab.plan.decision.reactive import reactive
from router.lab.plan.decision.solve import solve
from router.lab.plan.forecasts.forecast import Forecast
from router.lab.plan.observed import Observed, Place
from router.lab.plan.types_file import ReplicaType, Types

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
