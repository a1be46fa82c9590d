"""Makes one plan: forecasts the demand for each model in each region, and derives the advice.

Must never: read a file or a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from router.lab.plan.decision.advise import Advice, advise
from router.lab.plan.decision.present import steps
from router.lab.plan.flags import ALL, ARIMA
from router.lab.plan.forecasts.arima import Arima
from router.lab.plan.forecasts.backtest import choose, methods
from router.lab.plan.forecasts.method import Forecast, Method
from router.lab.plan.observed import Observed, Place
from router.lab.plan.types_file import Types


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and the data that it was made from."""

    types: Types
    types_source: str  # the name of the types file, or how the throughput was measured
    observed: Observed
    advice: Advice


def planned(
    types: Types,
    types_source: str,
    observed: Observed,
    method: str = ALL,
    on_progress: Callable[[float], None] | None = None,
) -> Planned:
    """Forecast and plan. `method`: one of `choices.METHODS`.

    Raises PlanError, and MissingExtra if a package is needed and missing.
    """
    found: dict[Place, Forecast] = {}
    count = steps(types, observed.window_s)
    places = sorted({*observed.demand, *(observed.running or {})})
    for number, place in enumerate(places):
        if on_progress is not None:
            on_progress(number / len(places))
        tokens = observed.demand[place].tokens if place in observed.demand else []
        if not any(tokens):
            none = (0.0,) * count
            found[place] = Forecast("", (), none, none, none)
        else:
            given = _methods(method, observed.window_s, len(tokens))
            chosen = choose(tokens, count, observed.window_s, types.error_limit, given)
            found[place] = chosen.forecast(tokens, count)
    return Planned(types, types_source, observed, advise(types, observed, found))


def _methods(method: str, window_s: float, windows: int) -> Sequence[Method]:
    everything = methods(window_s, windows)
    if method == ALL:
        return everything
    return [one for one in everything if isinstance(one, Arima) is (method == ARIMA)]
