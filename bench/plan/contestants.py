"""The compared controllers of a fleet's size: static, reactive rule, plan, and plan with rule.

The rule and the plan are the router's own functions. Each controller has one parameter, its *knob*:
the number of replicas (static), the upper threshold of the utilisation (rule), or the utilisation
limit (plan). If plan and rule are combined, the plan decides once in a window, and in between the
rule adds replicas above a utilisation of `SAFETY`. All values of the knob are simulated, and the
cheapest one that reaches the SLO attainment is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import Final

from bench.plan.fleet import Controller, Outcome, run
from bench.plan.traffic import DAY, STEP_S, WEEK, Demand
from bench.plan.world import THROUGHPUT, Counts, PoolKey, World
from router.plan.decision.advise import advise
from router.plan.decision.demand_ahead import steps
from router.plan.decision.reactive import Scaled, reactive
from router.plan.forecasts.backtest import choose, methods
from router.plan.forecasts.forecast import Forecast
from router.plan.observed import Observed, Place, Series
from router.plan.types_file import ModelSpeed, Reactive, ReplicaType, Shift, Types

STATIC, REACTIVE, PLAN, BOTH = "static", "reactive", "plan", "plan and rule"
NAMES: Final = (STATIC, REACTIVE, PLAN, BOTH)
# Utilisation above which the rule adds replicas, as in SageServe (arXiv 2502.14617).
SAFETY: Final = 0.9
# Seconds until a new replica serves: if the weights are on the machine, and if a machine must be
# found first.
LEADS_S: Final = (300.0, 1200.0)
WINDOW: Final = 3  # number of steps in a window; a new plan is made for each window
WINDOW_S: Final = WINDOW * STEP_S
TARGET: Final = 0.99  # SLO attainment that a controller must reach
UTILISATIONS: Final = (0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
MODEL: Final = "model"

Forecasts = Mapping[str, Mapping[int, Forecast]]  # by region, and by number of the window


def outcomes(world: World, forecasts: Forecasts) -> dict[str, dict[float, Outcome]]:
    """Simulate the second week with each controller and each value of its parameter (knob)."""

    def played(replicas: Counts, controller: Controller) -> Outcome:
        return run(world, WEEK, replicas, controller)

    begin = _spread(
        world, {region: ceil(world.load(region, WEEK - 1)) + 1 for region in world.demands}
    )
    found: dict[str, dict[float, Outcome]] = {name: {} for name in NAMES}
    peaks = {region: world.peak(region) for region in world.demands}
    peak = max(peaks.values())
    for count in range(max(1, peak // 3), peak + 1):
        fleet = _spread(world, {region: ceil(count * own / peak) for region, own in peaks.items()})
        found[STATIC][count] = played(fleet, static_controller(fleet))
    for share in UTILISATIONS:
        found[REACTIVE][share] = played(begin, reactive_controller(world, share))
        plan = plan_controller(world, types_of(world, share), forecasts)
        found[PLAN][share] = played(begin, plan)
        found[BOTH][share] = played(begin, with_rule(world, plan))
    return found


def _spread(world: World, counts: Mapping[str, int]) -> dict[PoolKey, int]:
    found: dict[PoolKey, int] = {}
    for region, count in counts.items():
        found |= world.spread(region, count)
    return found


def cheapest(by_knob: Mapping[float, Outcome]) -> tuple[float, Outcome | None]:
    """Return the parameter that reaches the target at the least cost, and its outcome."""
    enough = [(one.cost, knob) for knob, one in by_knob.items() if one.attainment >= TARGET]
    if not enough:
        return inf, None
    _, knob = min(enough)
    return knob, by_knob[knob]


def static_controller(fleet: Counts) -> Controller:
    """Return a controller that starts a replica only in place of a reclaimed one."""
    return lambda step, present: fleet


def reactive_controller(world: World, up: float) -> Controller:
    """Return a controller that applies the reactive rule to the utilisation of the last step."""
    rule = Reactive(up=up, down=up / 2.0)

    def wanted(step: int, present: Counts) -> Counts:
        found: dict[PoolKey, int] = {}
        for region in world.demands:
            load = world.load(region, step - 1)
            pools = [
                Scaled(
                    kind.name,
                    present[PoolKey(region, kind.name)],
                    load,
                    kind.cost,
                    kind.least,
                    kind.most,
                )
                for kind in world.kinds
            ]
            for name, count in reactive(pools, rule).items():
                found[PoolKey(region, name)] = count
        return found

    return wanted


def with_rule(world: World, plan: Controller) -> Controller:
    """Return a controller that follows the plan; between two plans, the rule adds replicas."""
    rule = reactive_controller(world, SAFETY)

    def wanted(step: int, present: Counts) -> Counts:
        planned = plan(step, present)
        if step % WINDOW == 0:
            return planned
        asked = rule(step, present)
        return {key: max(count, asked[key]) for key, count in planned.items()}

    return wanted


def plan_controller(world: World, types: Types, forecasts: Forecasts) -> Controller:
    """Return a controller that plans at the start of each window, and only there."""
    windows = {region: windowed(demand.tokens) for region, demand in world.demands.items()}

    def wanted(step: int, present: Counts) -> Counts:
        if step % WINDOW:
            return present
        window = step // WINDOW
        last = {region: known[window - 1 : window] for region, known in windows.items()}
        ahead = {Place(MODEL, region): known[window] for region, known in forecasts.items()}
        advice = advise(types, _observed(world, last, present), ahead)
        found = dict.fromkeys(world.pools, 0)
        for pool in advice.pools:
            found[PoolKey(pool.id.place.region, pool.id.type)] = pool.planned
        return found

    return wanted


def types_of(world: World, utilisation: float) -> Types:
    """Return the planner's input: the kinds of replicas, with a plan for every window."""
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
        period_s=WINDOW_S,
        scale_in_below=utilisation,
        scale_in_horizon_s=world.lead_s + 2.0 * WINDOW_S,
        cooldown_s=0.0,
        error_limit=1.0,
    )


def forecast_week(demand: Demand) -> dict[int, Forecast]:
    """Return the demand forecast at the start of each window of the second week, by window number.

    The forecasting method is chosen and fitted once a day, with all windows before that day.
    """
    windows = windowed(demand.tokens)
    longest = World("", {"": demand}, max(LEADS_S))
    count = steps(types_of(longest, 1.0), WINDOW_S)
    day = DAY // WINDOW
    found = {}
    for begin in range(WEEK // WINDOW, len(windows), day):
        known = windows[:begin]
        chosen = choose(known, count, WINDOW_S, 1.0, methods(WINDOW_S, len(known)))
        for window in range(begin, min(begin + day, len(windows))):
            found[window] = chosen.forecast(windows[:window], count)
    return found


def windowed(tokens: Sequence[float]) -> list[float]:
    """Return the number of tokens in each window."""
    return [sum(tokens[step : step + WINDOW]) for step in range(0, len(tokens), WINDOW)]


def _observed(world: World, tokens: Mapping[str, Sequence[float]], present: Counts) -> Observed:
    """Return what a plan sees. `tokens`: the windows of each region that are shown."""
    demand = {}
    for region, values in tokens.items():
        share = world.demands[region].prompt_share
        prompt = [share * value for value in values]
        output = [(1.0 - share) * value for value in values]
        demand[Place(MODEL, region)] = Series([0.0] * len(values), prompt, output)
    running: dict[Place, dict[str, int]] = {}
    for key, count in present.items():
        running.setdefault(Place(MODEL, key.region), {})[key.kind] = count
    return Observed(
        source=world.name, window_s=WINDOW_S, begin_s=0.0, demand=demand, running=running
    )
