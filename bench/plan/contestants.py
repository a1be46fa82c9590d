"""The compared controllers of a fleet's size, and the search for the best parameter of each.

Each controller has one parameter, its *knob*: the number of replicas (static), a threshold or
target of the utilisation (rules), or the utilisation limit (plan). The cheapest value that reaches
the SLO attainment counts, known in hindsight. SageServe's rule has the published thresholds. The
plan has a second row, with the attainment of SageServe's rule with the same demand. These two rows
are left out if there are several kinds of replicas, which that rule does not know.

`plan_controller`, `types_of`, `forecast_week`: the controller that follows `hedgerow plan`: it
makes a new plan at the start of each step.

The plan is the router's own function `advise`, with forecasts of the router's own methods. Pure.

`static_controller`, `reactive_controller`, `hpa_controller`: the compared controllers that use no
forecast.

Each rule decides for each region alone. The demand of a region is that of the last step, plus the
tokens that wait, which are to be served within one step. All rules see the waiting tokens, as the
plan does. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Final

from bench.plan.fleet import (
    DAY,
    STEP_S,
    THROUGHPUT,
    WEEK,
    Controller,
    Counts,
    Demand,
    Outcome,
    PoolKey,
    Seen,
    World,
    run,
)
from router.lab.plan.decision.advise import advise
from router.lab.plan.decision.present import steps
from router.lab.plan.decision.reactive import Scaled, reactive
from router.lab.plan.forecasts.backtest import choose, methods
from router.lab.plan.forecasts.method import Forecast
from router.lab.plan.observed import Observed, Place, Series
from router.lab.plan.types_file import ModelSpeed, Reactive, ReplicaType, Shift, Types

# The thresholds of SageServe's reactive rule, in its code (arXiv 2502.14617).
SAGESERVE_UP, SAGESERVE_DOWN = 0.5, 0.25
# Defaults of the Horizontal Pod Autoscaler (HPA) of Kubernetes 1.34.
TOLERANCE: Final = 0.1
STABILIZATION_S: Final = 300.0
_SLACK: Final = 1e-6  # replicas; a need of 3.0000001 counts as 3


def static_controller(fleet: Counts) -> Controller:
    """Return a controller that starts a replica only in place of a reclaimed one."""
    return lambda step, seen: fleet


def reactive_controller(world: World, up: float) -> Controller:
    """Return a controller with the router's reactive rule (`router.lab.plan.decision.reactive`).

    It scales out to the threshold `up` at once, and below half of it stops one replica in a step.
    """
    rule = Reactive(up=up, down=up / 2.0)

    def wanted(region: str, load: float, seen: Seen) -> Counts:
        pools = [
            Scaled(
                kind.name,
                seen.present[PoolKey(region, kind.name)],
                load,
                kind.cost,
                kind.least,
                kind.most,
            )
            for kind in world.kinds
        ]
        return {PoolKey(region, name): count for name, count in reactive(pools, rule).items()}

    return _by_region(world, wanted)


def hpa_controller(world: World, target: float) -> Controller:
    """Return a controller that keeps a utilisation, as the Horizontal Pod Autoscaler does.

    It scales to the demand divided by `target`, unless the present utilisation is within
    `TOLERANCE` of `target`. It follows the highest wish of the last `STABILIZATION_S`.
    """
    wishes: dict[str, list[int]] = {region: [] for region in world.demands}
    kept = 1 + round(STABILIZATION_S / STEP_S)

    def wanted(region: str, load: float, seen: Seen) -> Counts:
        present = _count(world, region, seen.present)
        is_near = present > 0 and abs(load / present / target - 1.0) <= TOLERANCE
        wish = present if is_near else ceil(load / target - _SLACK)
        wishes[region] = [*wishes[region], wish][-kept:]
        return world.spread(region, max(wishes[region]))

    return _by_region(world, wanted)


def sageserve_controller(
    world: World, up: float = SAGESERVE_UP, down: float = SAGESERVE_DOWN
) -> Controller:
    """Return a controller with the reactive rule of SageServe (arXiv 2502.14617).

    The utilisation is that of the serving replicas, at most 1. Above `up` one replica is started;
    the next one may start when this one serves. Below `down` replicas are stopped one by one. A
    stop takes no time, so the replicas of several stops may end in the same step. The published
    rule measures the utilisation of the KV memory.
    """

    def wanted(region: str, load: float, seen: Seen) -> Counts:
        present = _count(world, region, seen.present)
        serving = _count(world, region, seen.serving)
        count = present
        if present == serving:
            if serving and min(1.0, load / serving) > up:
                count += 1
            while count > 1 and load / count < down:
                count -= 1
        return world.spread(region, count)

    return _by_region(world, wanted)


def _by_region(world: World, wanted: Callable[[str, float, Seen], Counts]) -> Controller:
    def controller(step: int, seen: Seen) -> Counts:
        found: dict[PoolKey, int] = {}
        for region in world.demands:
            queued = seen.waiting[region] / STEP_S / THROUGHPUT
            found |= wanted(region, world.load(region, step - 1) + queued, seen)
        return found

    return controller


def _count(world: World, region: str, counts: Mapping[PoolKey, int]) -> int:
    return sum(counts[PoolKey(region, kind.name)] for kind in world.kinds)


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


STATIC, HPA, REACTIVE, SAGESERVE = "static", "HPA", "reactive", "SageServe's rule"
PLAN, EQUAL = "plan", "plan, in SLO as SageServe's rule"
NAMES: Final = (STATIC, HPA, REACTIVE, SAGESERVE, PLAN, EQUAL)
# Seconds until a new replica serves: if the weights are on the machine, and if a machine must be
# found first.
LEADS_S: Final = (300.0, 1200.0)
TARGET: Final = 0.99  # SLO attainment that a controller must reach
EVEN: Final = 1e-4  # attainments that differ by less count as equal
# Values of the knob, from the cheapest to the dearest.
UTILISATIONS: Final = tuple(percent / 100.0 for percent in range(100, 19, -2))

# Returns the outcome of a knob, or None if it does not reach the attainment `least`.
Play = Callable[[float], Outcome | None]


@dataclass(frozen=True, slots=True)
class Best:
    """The best parameter of a contestant, and its outcome; both None if none attains enough."""

    contestant: str
    knob: float | None
    outcome: Outcome | None


def contests(world: World, forecasts: Forecasts) -> list[Best]:
    """Simulate the second week with each controller, and return the best of each."""
    begin = _spread(
        world, {region: ceil(world.load(region, WEEK - 1)) + 1 for region in world.demands}
    )

    def play(of: Callable[[float], Controller], least: float) -> Play:
        return cache(lambda knob: run(world, WEEK, begin, of(knob), least))

    found = [
        _static(world),
        cheapest(HPA, UTILISATIONS, play(lambda target: hpa_controller(world, target), TARGET)),
        cheapest(REACTIVE, UTILISATIONS, play(lambda up: reactive_controller(world, up), TARGET)),
    ]
    least = TARGET
    if len(world.kinds) == 1:
        published = run(world, WEEK, begin, sageserve_controller(world), 0.0)
        assert published is not None
        found.append(Best(SAGESERVE, SAGESERVE_UP, published))
        equal = published.attainment - EVEN
        least = min(TARGET, equal)
    plan = play(lambda limit: plan_controller(world, types_of(world, limit), forecasts), least)
    found.append(bisected(PLAN, UTILISATIONS, plan, TARGET))
    if len(world.kinds) == 1:
        found.append(bisected(EQUAL, UTILISATIONS, plan, equal))
    return found


def _static(world: World) -> Best:
    peaks = {region: world.peak(region) for region in world.demands}
    peak = max(peaks.values())

    def play(count: float) -> Outcome | None:
        fleet = _spread(world, {region: ceil(count * own / peak) for region, own in peaks.items()})
        return run(world, WEEK, fleet, static_controller(fleet), TARGET)

    return cheapest(STATIC, range(max(1, peak // 3), peak + 1), play)


def _spread(world: World, counts: Counts | dict[str, int]) -> dict[PoolKey, int]:
    found: dict[PoolKey, int] = {}
    for region, count in counts.items():
        found |= world.spread(region, count)
    return found


def cheapest(contestant: str, knobs: Sequence[float], play: Play) -> Best:
    """Return the cheapest knob that attains enough. All knobs are played."""
    played = [(knob, play(knob)) for knob in knobs]
    enough = [(one.cost, knob, one) for knob, one in played if one is not None]
    if not enough:
        return Best(contestant, None, None)
    _, knob, outcome = min(enough, key=lambda one: one[:2])
    return Best(contestant, knob, outcome)


def bisected(contestant: str, knobs: Sequence[float], play: Play, least: float) -> Best:
    """Return a knob that attains `least`, while its cheaper neighbour does not.

    `knobs`: from the cheapest to the dearest. Only a few knobs are played. If the attainment does
    not fall steadily with the cost, a cheaper knob may attain `least` as well.
    """

    def attains(knob: float) -> bool:
        outcome = play(knob)
        return outcome is not None and outcome.attainment >= least

    low, high = 0, len(knobs)
    while low < high:
        middle = (low + high) // 2
        if attains(knobs[middle]):
            high = middle
        else:
            low = middle + 1
    return (
        Best(contestant, knobs[low], play(knobs[low]))
        if low < len(knobs)
        else Best(contestant, None, None)
    )
