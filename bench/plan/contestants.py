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
# Utilisation above which the rule adds replicas, as in SageServe (arXiv 2502.14617).
SAFETY: Final = 0.9
# Seconds until a new replica serves: if the weights are on the machine, and if a machine must be
# found first.
LEADS_S: Final = (300.0, 1200.0)
WINDOW: Final = 3  # number of steps in a window; a new plan is made for each window
WINDOW_S: Final = WINDOW * STEP_S
TARGET: Final = 0.99  # SLO attainment that a controller must reach
UTILISATIONS: Final = (0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
PLACE: Final = Place("model", "")


def outcomes(
    demand: Demand, lead_s: float, forecasts: Mapping[int, Forecast]
) -> dict[str, dict[float, Outcome]]:
    """Simulate the second week with each controller and each value of its parameter (knob)."""

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
    """Return the parameter that reaches the target with the fewest GPU-hours, and its outcome."""
    enough = [(one.gpu_hours, knob) for knob, one in by_knob.items() if one.attainment >= TARGET]
    if not enough:
        return inf, None
    _, knob = min(enough)
    return knob, by_knob[knob]


def reactive_controller(demand: Demand, up: float) -> Controller:
    """Return a controller that applies the reactive rule to the utilisation of the last step."""
    rule = Reactive(up=up, down=up / 2.0)

    def wanted(step: int, present: int) -> int:
        load = demand.tokens[step - 1] / STEP_S / THROUGHPUT
        return reactive([Scaled("gpu", present, load, 1.0, low=1)], rule)["gpu"]

    return wanted


def with_rule(demand: Demand, plan: Controller) -> Controller:
    """Return a controller that follows the plan; between two plans, the rule adds replicas."""
    rule = reactive_controller(demand, SAFETY)

    def wanted(step: int, present: int) -> int:
        return (
            max(plan(step, present), rule(step, present)) if step % WINDOW else plan(step, present)
        )

    return wanted


def plan_controller(demand: Demand, types: Types, forecasts: Mapping[int, Forecast]) -> Controller:
    """Return a controller that plans at the start of each window, and only there."""
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
    """Return the planner's input: one type of replica, with a plan for every window."""
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
    """Return the demand forecast at the start of each window of the second week, by window number.

    The forecasting method is chosen and fitted once a day, with all windows before that day.
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
    """Return the number of tokens in each window."""
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
