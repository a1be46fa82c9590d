"""Forecast and plan together: the fallback, and the methods that are asked for."""

from dataclasses import replace

from router.lab.plan.decision.advise import REACTIVE
from router.lab.plan.observed import Observed, Place, Series
from router.lab.plan.planning import planned
from router.lab.plan.types_file import parse
from tests.lab.plan.forecasts.curves import DAY, WINDOW_S, daily, unpredictable

TYPES = parse(
    "types: [{name: gpu, cost: 1, models: {m: {throughput: 0.01}}}]\n"
    "utilisation: 1\nscale_in_below: 1\nperiod: 4h\nscale_in_horizon: 4h"
)
PLACE = Place("m")


def observed(tokens: list[float], now: int) -> Observed:
    none = [0.0] * len(tokens)
    return Observed(
        source="test",
        window_s=WINDOW_S,
        begin_s=0.0,
        demand={PLACE: Series(none, tokens, none)},
        running={PLACE: {"gpu": now}},
    )


def test_a_daily_curve_is_planned_for_before_it_rises() -> None:
    values = daily(10 * DAY)  # at the mean, before a day's rise
    found = planned(TYPES, "test", observed(values, 3), "seasonal").advice
    (pool,) = found.pools
    peak = max(daily(10 * DAY + 5)[-5:])
    assert pool.planned == -(-peak // (0.01 * WINDOW_S))
    assert "seasonal naive" in found.places[0].forecast.method
    assert pool.planned > (pool.reactive or 0)


def test_demand_without_a_pattern_falls_back_to_the_rule() -> None:
    values = [*unpredictable(10 * DAY), 36.0]
    found = planned(TYPES, "test", observed(values, 1), "seasonal").advice
    (place,) = found.places
    assert place.binding == REACTIVE
    assert "above the limit of 35%" in place.forecast.distrust
    # 36 tokens in an hour keep one replica busy: the rule starts one.
    assert [(pool.planned, pool.reactive) for pool in found.pools] == [(2, 2)]


def test_the_mean_of_all_good_methods_is_the_default() -> None:
    made = planned(TYPES, "test", observed(daily(4 * DAY, noise=0.02), 3))
    used, *tested = made.advice.places[0].forecast.tested
    assert used.method.startswith("mean of ")
    names = {"seasonal naive (day)", "day profile", "ARIMA(3,1,2)"}
    assert {one.method for one in tested} == names
    errors = [one.error for one in tested if one.error is not None]
    assert len(errors) == 3
    assert errors == sorted(errors)


def test_replicas_of_a_model_without_any_request_are_planned_too() -> None:
    seen = replace(observed([1.0] * 100, 1), demand={})
    assert [pool.planned for pool in planned(TYPES, "test", seen).advice.pools] == [0]
