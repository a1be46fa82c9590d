"""The share of the slots that is offered to class batch."""

from __future__ import annotations

import msgspec
import pytest

from router.lab.plan.decision.advise import advise
from router.lab.plan.forecasts.method import Forecast
from router.lab.plan.observed import Observed, Place
from router.lab.plan.types_file import Types, parse
from tests.lab.plan.decision.fleets import PLACE, RATE, WINDOW_S, forecast, observed, types


def shared(kinds: Types, seen: Observed, **ahead: Forecast) -> list[float | None]:
    """The shares of the places; `ahead`: the forecast by region, `m` if there are no regions."""
    forecasts = {PLACE if name == "m" else Place("m", name): one for name, one in ahead.items()}
    return [place.batch_share for place in advise(kinds, seen, forecasts).places]


def test_the_forecast_leaves_the_rest_to_batch() -> None:
    kinds = types(speed="min: 4")
    assert shared(kinds, observed(now=4), m=forecast(1.0)) == [pytest.approx(0.75)]
    assert shared(kinds, observed(now=4), m=forecast(4.0)) == [0.0]
    assert shared(kinds, observed(now=4), m=forecast(0.0)) == [1.0]
    assert shared(kinds, observed(), m=forecast(1.0)) == [pytest.approx(0.75)]


def test_it_is_taken_back_before_the_rush() -> None:
    kinds = types(speed="min: 4")
    quiet = [1.0] * 4
    assert shared(kinds, observed(now=4), m=forecast(*quiet, 3.0)) == [pytest.approx(0.75)]
    assert shared(kinds, observed(now=4), m=forecast(*quiet[1:], 3.0)) == [pytest.approx(0.25)]


def test_a_starting_replica_is_not_offered() -> None:
    kinds = types(speed="min: 4")
    (one,) = kinds.types
    slow = msgspec.structs.replace(kinds, types=(msgspec.structs.replace(one, lead_s=1800.0),))
    assert shared(slow, observed(now=2), m=forecast(1.0)) == [pytest.approx(0.5)]


def test_nothing_is_offered_where_demand_is_not_served_or_nothing_runs() -> None:
    assert shared(types(speed="max: 2"), observed(now=2), m=forecast(3.0)) == [0.0]
    assert shared(types(), observed(now=0), m=forecast(0.0)) == [0.0]


def test_nothing_is_said_without_a_forecast() -> None:
    seen = observed(now=4)
    assert shared(types(speed="min: 4"), seen, m=forecast(1.0, distrust="large error")) == [None]


def test_demand_that_moves_to_a_region_is_counted_there() -> None:
    kinds = parse(
        "types: [{name: gpu, cost: 1, lead: 0, regions: [eu, us], "
        f"models: {{m: {{throughput: {RATE}, min: 4, max: 4}}}}}}]\n"
        "utilisation: 1\nscale_in_below: 1\ncooldown: 0\n"
        "shift: [{source: eu, target: us, share: 1}]"
    )
    seen = Observed(source="x", window_s=WINDOW_S, begin_s=0.0, demand={})
    assert shared(kinds, seen, eu=forecast(6.0), us=forecast(1.0)) == [
        pytest.approx(0.0),
        pytest.approx(0.25),
    ]
