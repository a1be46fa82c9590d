"""The controller that follows `hedgerow plan`: it makes a new plan at the start of each step.

The plan is the router's own function `advise`, with forecasts of the router's own methods. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bench.plan.fleet import Controller, Seen
from bench.plan.traffic import DAY, STEP_S, WEEK, Demand
from bench.plan.world import THROUGHPUT, Counts, PoolKey, World
from router.lab.plan.decision.advise import advise
from router.lab.plan.decision.present import steps
from router.lab.plan.forecasts.backtest import choose, methods
from router.lab.plan.forecasts.method import Forecast
from router.lab.plan.observed import Observed, Place, Series
from router.lab.plan.types_file import ModelSpeed, ReplicaType, Shift, Types

MODEL: Final = "model"
REQUEST: Final = 4000.0  # tokens of a request; the plan counts waiting requests
PERIOD_S: Final = STEP_S  # seconds until the next plan

Forecasts = Mapping[str, Mapping[int, Forecast]]  # by region, and by number of the step


def plan_controller(world: World, types: Types, forecasts: Forecasts) -> Controller:
    """Return a controller that makes a plan at the start of each step."""

    def wanted(step: int, seen: Seen) -> Counts:
        ahead = {Place(MODEL, region): known[step] for region, known in forecasts.items()}
        advice = advise(types, _observed(world, step, seen), ahead)
        found = dict.fromkeys(world.pools, 0)
        for pool in advice.pools:
            found[PoolKey(pool.id.place.region, pool.id.type)] = pool.planned
        return found

    return wanted


def types_of(world: World, utilisation: float) -> Types:
    """Return the planner's input: the kinds of replicas, with a plan for every step."""
    regions = tuple(world.demands)
    return Types(
        types=tuple(
            ReplicaType(
                name=kind.name,
                cost=kind.cost,
                lead_s=world.lead_s,
                regions=regions,
                models={MODEL: ModelSpeed(throughput=THROUGHPUT, min=kind.least, max=kind.most)},
            )
            for kind in world.kinds
        ),
        shift=tuple(
            Shift(source=one, target=other, share=world.spill)
            for one in regions
            for other in regions
            if one != other
        ),
        utilisation=utilisation,
        period_s=PERIOD_S,
        scale_in_below=utilisation,
        scale_in_horizon_s=world.lead_s + 2.0 * PERIOD_S,
        cooldown_s=0.0,
        error_limit=1.0,
    )


def forecast_week(world: World) -> dict[str, dict[int, Forecast]]:
    """Return the forecasts at the start of each step of the second week, by region and step.

    The forecasting method is chosen and fitted once a day, with all steps before that day. `world`
    has the longest lead time that is compared.
    """
    count = steps(types_of(world, 1.0), STEP_S)
    return {region: _forecasts(demand, count) for region, demand in world.demands.items()}


def _forecasts(demand: Demand, count: int) -> dict[int, Forecast]:
    tokens, found = demand.tokens, {}
    for begin in range(WEEK, len(tokens), DAY):
        known = tokens[:begin]
        chosen = choose(known, count, STEP_S, 1.0, methods(STEP_S, len(known)))
        for step in range(begin, min(begin + DAY, len(tokens))):
            found[step] = chosen.forecast(tokens[:step], count)
    return found


def _observed(world: World, step: int, seen: Seen) -> Observed:
    """Return what a plan sees: the demand of the last step, the replicas and the queues."""
    demand: dict[Place, Series] = {}
    running: dict[Place, Mapping[str, int]] = {}
    waiting: dict[Place, float] = {}
    for region, one in world.demands.items():
        place, tokens = Place(MODEL, region), one.tokens[step - 1]
        demand[place] = Series(*_one(tokens, one.prompt_share))
        running[place] = {
            kind.name: seen.present[PoolKey(region, kind.name)] for kind in world.kinds
        }
        waiting[place] = seen.waiting[region] / REQUEST
    return Observed(
        source=world.name,
        window_s=STEP_S,
        begin_s=0.0,
        demand=demand,
        running=running,
        waiting=waiting,
    )


def _one(tokens: float, prompt_share: float) -> Sequence[list[float]]:
    """Return the requests, prompt tokens and output tokens of one window."""
    return [tokens / REQUEST], [prompt_share * tokens], [(1.0 - prompt_share) * tokens]
