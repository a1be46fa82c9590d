"""The controllers: a static fleet, the reactive rule, the plan, and both; each with one knob.

The rule and the plan are the router's own functions. Each has a knob: the number of replicas, the
upper threshold of the utilisation, or the utilisation limit. With both, the plan decides once in a
window, and in between the rule adds replicas above a utilisation of `SAFETY`. The values of the
knob are tried, and the cheapest one that reaches the SLO attainment counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import Final

from bench.plan.fleet import THROUGHPUT, Controller, Outcome, run
from bench.plan.traffic import DAY, STEP_S, WEEK, Demand
from router.plan.decision.advise import advise
from router.plan.decision.demand_ahead import steps
from router.plan.decision.reactive import Scaled, reactive
from router.plan.forecasts.backtest import choose, methods
from router.plan.forecasts.forecast import Forecast
from router.plan.observed import Observed, Place, Series
from router.plan.types_file import ModelSpeed, Reactive, ReplicaType, Types

STATIC, REACTIVE, PLAN, BOTH = "static", "reactive", "plan", "plan and rule"
NAMES: Final = (STATIC, REACTIVE, PLAN, BOTH)
SAFETY: Final = 0.9  # as in SageServe (arXiv 2502.14617)
LEADS_S: Final = (300.0, 1200.0)  # the weights are on the machine; a machine must be found first
WINDOW: Final = 3  # steps of a window of the plan, and between two plans
WINDOW_S: Final = WINDOW * STEP_S
TARGET: Final = 0.99  # SLO attainment
UTILISATIONS: Final = (0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
PLACE: Final = Place("model", "")


def outcomes(
    demand: Demand, lead_s: float, forecasts: Mapping[int, Forecast]
) -> dict[str, dict[float, Outcome]]:
    """The result of each contestant with each value of its knob, over the second week."""

    def played(replicas: int, controller: Controller) -> Outcome:
        return run(demand.tokens, WEEK, replicas, controller, lead_s)

    begin = ceil(demand.tokens[WEEK - 1] / STEP_S / THROUGHPUT) + 1
    found: dict[str, dict[float, Outcome]] = {name: {} for name in NAMES}
    peak = ceil(max(demand.tokens[WEEK:]) / STEP_S / THROUGHPUT)
    for count in range(max(1, peak // 3), peak + 1):
        found[STATIC][count] = played(count, lambda step, present: present)
    for share in UTILISATIONS:
        found[REACTIVE][share] = played(begin, reactive_controller(demand, share))
        plan = plan_controller(demand, types_of(share, lead_s), forecasts)
        found[PLAN][share] = played(begin, plan)
        found[BOTH][share] = played(begin, with_rule(demand, plan))
    return found


def cheapest(by_knob: Mapping[float, Outcome]) -> tuple[float, Outcome | None]:
    """The knob with the fewest GPU-hours that reaches the target, and its outcome."""
    enough = [(one.gpu_hours, knob) for knob, one in by_knob.items() if one.attainment >= TARGET]
    if not enough:
        return inf, None
    _, knob = min(enough)
    return knob, by_knob[knob]


def reactive_controller(demand: Demand, up: float) -> Controller:
    """Asks the reactive rule at each step, with the utilisation of the last one."""
    rule = Reactive(up=up, down=up / 2.0)

    def wanted(step: int, present: int) -> int:
        load = demand.tokens[step - 1] / STEP_S / THROUGHPUT
        return reactive([Scaled("gpu", present, load, 1.0, low=1)], rule)["gpu"]

    return wanted


def with_rule(demand: Demand, plan: Controller) -> Controller:
    """The plan, and between two plans the rule, which only adds replicas."""
    rule = reactive_controller(demand, SAFETY)

    def wanted(step: int, present: int) -> int:
        return (
            max(plan(step, present), rule(step, present)) if step % WINDOW else plan(step, present)
        )

    return wanted


def plan_controller(demand: Demand, types: Types, forecasts: Mapping[int, Forecast]) -> Controller:
    """Plans at the begin of each window, and keeps the number until the next one."""
    windows = windowed(demand.tokens)

    def wanted(step: int, present: int) -> int:
        if step % WINDOW:
            return present
        window = step // WINDOW
        observed = _observed(demand, windows[window - 1 : window], present)
        advice = advise(types, observed, {PLACE: forecasts[window]})
        return sum(pool.planned for pool in advice.pools)

    return wanted


def types_of(utilisation: float, lead_s: float) -> Types:
    """One type, planned for every window."""
    return Types(
        types=(
            ReplicaType(
                name="gpu",
                cost=1.0,
                lead_s=lead_s,
                models={"model": ModelSpeed(throughput=THROUGHPUT, min=1)},
            ),
        ),
        utilisation=utilisation,
        period_s=WINDOW_S,
        scale_in_below=utilisation,
        scale_in_horizon_s=lead_s + 2.0 * WINDOW_S,
        cooldown_s=0.0,
        error_limit=1.0,
    )


def forecast_week(demand: Demand) -> dict[int, Forecast]:
    """The forecast at the begin of each window of the second week.

    The method is chosen and fitted once a day, as every day the windows of one more day are known.
    """
    windows = windowed(demand.tokens)
    count = steps(types_of(1.0, max(LEADS_S)), WINDOW_S)
    day = DAY // WINDOW
    found = {}
    for begin in range(WEEK // WINDOW, len(windows), day):
        known = windows[:begin]
        chosen = choose(known, count, WINDOW_S, 1.0, methods(WINDOW_S, len(known)))
        for window in range(begin, min(begin + day, len(windows))):
            found[window] = chosen.forecast(windows[:window], count)
    return found


def windowed(tokens: Sequence[float]) -> list[float]:
    """The tokens of each window."""
    return [sum(tokens[step : step + WINDOW]) for step in range(0, len(tokens), WINDOW)]


def _observed(demand: Demand, tokens: Sequence[float], present: int) -> Observed:
    prompt = [demand.prompt_share * value for value in tokens]
    output = [(1.0 - demand.prompt_share) * value for value in tokens]
    return Observed(
        source=demand.name,
        window_s=WINDOW_S,
        begin_s=0.0,
        demand={PLACE: Series([0.0] * len(tokens), prompt, output)},
        running={PLACE: {"gpu": present}},
    )
