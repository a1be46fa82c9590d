"""The advice: limits, lead times, cool-downs, the scale-in rule, the fallback, and the reasons."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from router.lab.plan.decision.advise import DEMAND, LEAD, MAXIMUM, MINIMUM, REACTIVE, Advice, advise
from router.lab.plan.decision.problem import PlanError
from router.lab.plan.forecasts.method import Forecast
from router.lab.plan.observed import Observed, Place, Series
from router.lab.plan.types_file import Types, parse
from tests.lab.plan.decision.fleets import (
    PLACE,
    RATE,
    REQUESTS,
    WINDOW_S,
    forecast,
    observed,
    types,
)


def decided(kinds: Types, seen: Observed, ahead: Forecast) -> tuple[int, str]:
    """The planned replicas of the only place, and the constraint that decides."""
    advice = advise(kinds, seen, {PLACE: ahead})
    (place,) = advice.places
    return sum(pool.planned for pool in advice.pools), place.binding


def test_the_upper_bound_of_the_forecast_is_planned_for() -> None:
    ahead = forecast(2.0)
    assert decided(types(), observed(now=1), replace(ahead, high=ahead.mean)) == (2, DEMAND)
    double = tuple(2.0 * value for value in ahead.high)
    assert decided(types(), observed(now=1), replace(ahead, high=double)) == (4, DEMAND)


def test_the_minimum_and_the_maximum_hold() -> None:
    assert decided(types(speed="min: 5"), observed(now=1), forecast(2.5)) == (5, MINIMUM)
    assert decided(types(speed="max: 2"), observed(now=1), forecast(2.5)) == (2, MAXIMUM)
    assert decided(types(speed="max: 2"), observed(now=4), forecast(2.5)) == (2, MAXIMUM)


def test_demand_before_the_lead_time_is_not_served() -> None:
    slow = with_lead(1800.0)
    advice = advise(slow, observed(now=2), {PLACE: forecast(5.0, 5.0, 3.0)})
    (place,) = advice.places
    assert place.binding == LEAD
    assert place.short == pytest.approx(0.6)
    assert [pool.planned for pool in advice.pools] == [3]


def with_lead(lead_s: float) -> Types:
    kinds = types()
    (one,) = kinds.types
    return msgspec.structs.replace(kinds, types=(msgspec.structs.replace(one, lead_s=lead_s),))


def test_a_peak_before_the_lead_time_keeps_replicas() -> None:
    slow = with_lead(1800.0)
    assert decided(slow, observed(now=5), forecast(4.5, 4.5, 1.0)) == (5, DEMAND)


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({"waiting": {PLACE: 2.0}}, "queue"),
        ({"unchanged_s": {PLACE: 60.0}}, "cool-down"),
    ],
)
def test_no_replica_stops(about: dict[str, Any], reason: str) -> None:
    kinds = parse(
        f"types: [{{name: gpu, cost: 2, models: {{m: {{throughput: {RATE}}}}}}}]\n"
        "utilisation: 1\nscale_in_below: 1"
    )
    assert decided(kinds, observed(now=6, **about), forecast(2.5)) == (6, reason)
    assert decided(kinds, observed(now=6), forecast(2.5)) == (3, DEMAND)
    # More replicas may start at any time.
    assert decided(kinds, observed(now=6, **about), forecast(8.5)) == (9, DEMAND)


def test_waiting_requests_are_served_within_a_window() -> None:
    seen = observed(now=6, waiting={PLACE: 2.0 * REQUESTS})  # two replicas for one window
    assert decided(types(), seen, forecast(5.5)) == (8, DEMAND)
    advice = advise(types(), seen, {PLACE: forecast(5.5)})
    assert advice.places[0].peak == pytest.approx(7.5 * RATE)
    doubt = forecast(5.5, distrust="error 90%")
    assert decided(types("reactive: {up: 0.5, down: 0.1}"), seen, doubt) == (6, REACTIVE)
    seen = observed(now=6, waiting={PLACE: 4.0 * REQUESTS})
    assert decided(types("reactive: {up: 0.5, down: 0.1}"), seen, doubt) == (10, REACTIVE)


def test_no_replica_stops_for_a_forecast_that_is_not_low() -> None:
    kinds = parse(
        f"types: [{{name: gpu, cost: 2, lead: 0, models: {{m: {{throughput: {RATE}}}}}}}]\n"
        "utilisation: 1\nscale_in_below: 0.5"
    )
    assert decided(kinds, observed(now=6), forecast(3.1)) == (6, "forecast")
    assert decided(kinds, observed(now=6), forecast(2.9)) == (3, DEMAND)


def test_an_untrusted_forecast_leaves_the_decision_to_the_rule() -> None:
    doubt = forecast(50.0, distrust="error 90%")
    assert decided(types(), observed(now=4, load=3.5), doubt) == (5, REACTIVE)
    assert decided(types(), observed(now=4, load=1.0), doubt) == (3, REACTIVE)
    assert decided(types(), observed(load=3.5), doubt) == (5, REACTIVE)  # unknown present replicas


@pytest.mark.parametrize("about", [{"waiting": {PLACE: 1.0}}, {"unchanged_s": {PLACE: 60.0}}])
def test_the_rule_stops_no_replica_either(about: dict[str, Any]) -> None:
    kinds = parse(f"types: [{{name: gpu, cost: 2, models: {{m: {{throughput: {RATE}}}}}}}]")
    doubt = forecast(50.0, distrust="error 90%")
    assert decided(kinds, observed(now=4, load=1.0), doubt) == (3, REACTIVE)
    assert decided(kinds, observed(now=4, load=1.0, **about), doubt) == (4, REACTIVE)
    assert decided(kinds, observed(now=4, load=3.4, **about), doubt) == (5, REACTIVE)


REGIONS = (
    "types: [{{name: gpu, cost: 2, lead: 0, regions: [eu, us], {} "
    "models: {{m: {{throughput: 100, max: {}}}}}}}]\nutilisation: 1\nscale_in_below: 1\n{}"
)
EU, US = Place("m", "eu"), Place("m", "us")


def two_regions(eu: float, us: float, kinds: Types, *doubted: Place) -> Advice:
    loads = {EU: eu, US: us}
    seen = replace_demand(loads)
    return advise(
        kinds,
        seen,
        {
            place: forecast(load, distrust="doubt" if place in doubted else "")
            for place, load in loads.items()
        },
    )


def replace_demand(loads: dict[Place, float]) -> Observed:
    return Observed(
        source="test",
        window_s=WINDOW_S,
        begin_s=0.0,
        demand={
            place: Series([1.0], [load * RATE * WINDOW_S], [0.0]) for place, load in loads.items()
        },
        running={EU: {"gpu": 1}, US: {"gpu": 1}},
    )


def counts(advice: Advice) -> dict[Place, int]:
    return {pool.id.place: pool.planned for pool in advice.pools}


def test_demand_shifts_where_allowed() -> None:
    free = parse(REGIONS.format("", 4, "shift: [{source: eu, target: us, share: 0.5}]"))
    advice = two_regions(6.0, 1.0, free)
    assert counts(advice) == {EU: 4, US: 3}
    assert advice.places[0].shifted == {"us": pytest.approx(1 / 3, abs=1e-3)}
    bound = two_regions(6.0, 1.0, parse(REGIONS.format("", 4, "")))
    assert counts(bound) == {EU: 4, US: 1}
    assert bound.places[0].binding == MAXIMUM
    assert bound.places[0].short == pytest.approx(1 / 3)


def test_demand_may_shift_to_a_region_without_demand() -> None:
    free = parse(REGIONS.format("", 4, "shift: [{source: eu, target: us}]"))
    seen = replace_demand({EU: 6.0})
    advice = advise(free, seen, {EU: forecast(6.0)})
    assert counts(advice) == {EU: 4, US: 2}


def test_a_total_is_named() -> None:
    advice = two_regions(6.0, 1.0, parse(REGIONS.format("total: 3,", 9, "")))
    assert counts(advice) == {EU: 3, US: 1}
    assert [place.binding for place in advice.places] == ["total of gpu", DEMAND]


def test_a_model_without_a_type_is_noted() -> None:
    other = Place("x")
    seen = replace(observed(now=1), demand={**observed().demand, other: Series([1], [1], [1])})
    advice = advise(types(), seen, {PLACE: forecast(1.0), other: forecast(1.0)})
    assert [place.place for place in advice.places] == [PLACE]
    assert advice.notes == ["no type serves x: it is not planned"]


def test_types_for_other_models_are_an_error() -> None:
    with pytest.raises(PlanError, match=r"no type serves any model of the demand: it has x;.* m"):
        advise(types(), observed(place=Place("x")), {Place("x"): forecast(1.0)})


def test_untrusted_forecasts_everywhere_leave_nothing_to_solve() -> None:
    kinds = types(one="total: 9,")
    assert decided(kinds, observed(now=4, load=3.5), forecast(1.0, distrust="?")) == (5, REACTIVE)


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
