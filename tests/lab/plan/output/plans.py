"""A plan of two models in two regions, for tests of its output."""

from router.lab.plan.decision.advise import advise
from router.lab.plan.observed import Measured, Observed, Place, Series
from router.lab.plan.planning import Planned
from router.lab.plan.types_file import parse
from tests.lab.plan.decision.fleets import RATE, WINDOW_S, forecast

EU, US, OTHER = Place("m", "eu"), Place("m", "us"), Place('odd"name', "eu")
TYPES = parse(
    "types: [{name: gpu, cost: 2, regions: [eu, us], models: {'*': {throughput: 100, max: 4}}}]\n"
    "utilisation: 1\nscale_in_below: 1\nshift: [{source: eu, target: us, share: 0.5}]"
)


def series(load: float) -> Series:
    tokens = load * RATE * WINDOW_S
    return Series([9.0] * 200, [0.8 * tokens] * 200, [0.2 * tokens] * 200)


def plan(*, known: bool = True) -> Planned:
    observed = Observed(
        source="eu.log, us.log",
        window_s=WINDOW_S,
        begin_s=1_772_323_200.0,
        demand={EU: series(3.0), US: series(1.0), OTHER: series(1.5)},
        running={EU: {"gpu": 3}, US: {"gpu": 1}, OTHER: {"gpu": 2}} if known else None,
        throughput={"m": Measured(100.0, 12, 90, was_full=True)},
        notes=["eu.log: 3 × skipped: failed"],
    )
    forecasts = {
        EU: forecast(6.0),
        US: forecast(1.0),
        OTHER: forecast(1.5, distrust="error 80% of the best method, above the limit of 35%"),
    }
    return Planned(TYPES, "plan.yaml", observed, advise(TYPES, observed, forecasts))
