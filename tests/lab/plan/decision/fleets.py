"""Observed demand and forecasts that are known exactly."""

from collections.abc import Sequence
from typing import Any

from router.lab.plan.forecasts.method import Backtest, Forecast
from router.lab.plan.observed import Observed, Place, Series
from router.lab.plan.types_file import Types, parse

WINDOW_S = 900.0
RATE = 100.0  # tokens/s that one replica of the types file below serves
REQUESTS = 1000.0
PLACE = Place("m")


def types(more: str = "", speed: str = "", one: str = "") -> Types:
    """One type. `more`: lines of the file; `speed`, `one`: settings of the model and the type."""
    return parse(
        f"types: [{{name: gpu, cost: 2, lead: 0, {one} models: "
        f"{{m: {{throughput: {RATE}, {speed} }}}}}}]\n"
        f"utilisation: 1\nscale_in_below: 1\ncooldown: 0\n{more}"
    )


def observed(
    now: int | None = None, load: float = 1.0, place: Place = PLACE, **more: Any
) -> Observed:
    """`load`: replicas that the demand of the last window keeps busy.

    Each window has `REQUESTS` requests.
    """
    tokens = load * RATE * WINDOW_S
    return Observed(
        source="test",
        window_s=WINDOW_S,
        begin_s=0.0,
        demand={place: Series([REQUESTS] * 4, [0.75 * tokens] * 4, [0.25 * tokens] * 4)},
        running=None if now is None else {place: {"gpu": now}},
        **more,
    )


def forecast(*loads: float, distrust: str = "", windows: int = 12) -> Forecast:
    """Upper bounds as loads in replicas; the last one lasts. The mean is 10 % lower."""
    high = tuple(load * RATE * WINDOW_S for load in _lasting(loads, windows))
    mean = tuple(0.9 * value for value in high)
    tested = (Backtest("known", 0.1, 24),)
    return Forecast("known", tested, mean, mean, high, distrust)


def _lasting(loads: Sequence[float], windows: int) -> list[float]:
    return [*loads, *[loads[-1]] * (windows - len(loads))]
