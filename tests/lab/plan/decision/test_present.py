"""The state of a place, and whether replicas may stop."""

from typing import Any

import pytest

from router.lab.plan.decision.present import COOLDOWN, FORECAST, QUEUE, loaded, present, segments
from router.lab.plan.observed import Place
from router.lab.plan.types_file import parse
from tests.lab.plan.decision.fleets import (
    PLACE,
    RATE,
    REQUESTS,
    WINDOW_S,
    forecast,
    observed,
    types,
)


def test_the_utilisation_is_that_of_the_last_window() -> None:
    state = present(types(), observed(now=4, load=3.0), PLACE)
    assert state.utilisation == pytest.approx(0.75)
    assert state.capacity({"gpu": 4}) == pytest.approx(4 * RATE)
    assert present(types(), observed(load=3.0), PLACE).utilisation is None
    assert present(types(), observed(now=0, load=3.0), PLACE).utilisation is None


def test_the_rule_must_serve_the_waiting_requests_too() -> None:
    seen = observed(now=4, load=2.0, waiting={PLACE: 0.5 * REQUESTS})
    state = present(types(), seen, PLACE)
    assert state.waiting_per_s == pytest.approx(1.0 * RATE)  # each has the tokens of a mean request
    assert [pool.load for pool in state.pools()] == pytest.approx([3.0])
    assert state.utilisation == pytest.approx(0.5)


def test_prefill_and_decode_are_weighted_by_the_mix() -> None:
    both = parse("types: [{name: gpu, cost: 1, models: {m: {prefill: 1000, decode: 100}}}]")
    state = present(both, observed(load=1.0), PLACE)
    assert state.units["gpu"] == pytest.approx(0.75 / 1000 + 0.25 / 100)


def test_only_types_of_the_region_serve_a_place() -> None:
    two = parse(
        "types: [{name: a, cost: 1, regions: [eu], models: {m: {throughput: 1}}},"
        "{name: b, cost: 1, regions: [us], models: {'*': {throughput: 1}}}]"
    )
    state = present(two, observed(), Place("m", "us"))
    assert [one.name for one in state.types] == ["b"]
    assert set(state.units) == {"a", "b"}
    assert present(two, observed(), Place("x", "eu")).types == ()


def bar(load: float = 1.0, **about: Any) -> str:
    kinds = parse(
        f"types: [{{name: gpu, cost: 2, models: {{m: {{throughput: {RATE}}}}}}}]\n"
        "scale_in_below: 0.5\nscale_in_horizon: 2h\ncooldown: 30m\n"
    )
    state = present(kinds, observed(now=10, **about), PLACE)
    return state.bar(kinds, forecast(load).high, WINDOW_S)


def test_replicas_may_stop_if_nothing_is_against_it() -> None:
    assert bar() == ""
    assert bar(unchanged_s={PLACE: 1800.0}, waiting={PLACE: 0.0}) == ""


def test_no_replica_stops_while_requests_wait() -> None:
    assert bar(waiting={PLACE: 1.0}) == QUEUE


def test_no_replica_stops_during_the_cool_down() -> None:
    assert bar(unchanged_s={PLACE: 1799.0}) == COOLDOWN


def test_no_replica_stops_if_the_forecast_is_not_low() -> None:
    assert bar(load=4.9) == ""
    assert bar(load=5.0) == FORECAST


TYPES = parse(
    "types: [{name: quick, cost: 1, lead: 5m, models: {m: {throughput: 100}}},"
    "{name: slow, cost: 1, lead: 30m, models: {m: {throughput: 200}}}]\n"
    "period: 1h\nscale_in_horizon: 3h"
)


def test_a_start_counts_after_its_lead_time() -> None:
    found = [(one.first, one.end, set(one.starting)) for one in segments(TYPES, WINDOW_S)]
    # A quick start serves more than half of the first window, a slow one begins with the third.
    assert found == [(0, 2, {"quick"}), (2, 6, {"quick", "slow"})]


def test_without_a_known_fleet_there_are_no_lead_times() -> None:
    (one,) = segments(TYPES, WINDOW_S, has_leads=False)
    assert (one.first, one.end) == (0, 6)


def test_the_load_is_that_of_the_busiest_window_of_the_segment() -> None:
    early, late = segments(TYPES, WINDOW_S)
    states = {PLACE: present(TYPES, observed(), PLACE)}
    tokens = {PLACE: forecast(1.0, 3.0, 2.0, 2.5, 2.0).high}
    assert loaded(early, tokens, states, WINDOW_S).loads == {
        (PLACE, "quick"): pytest.approx(3.0),
        (PLACE, "slow"): pytest.approx(1.5),
    }
    assert loaded(late, tokens, states, WINDOW_S).loads[PLACE, "quick"] == pytest.approx(2.5)
    assert RATE == 100.0


def test_each_segment_must_serve_the_waiting_requests() -> None:
    early, late = segments(TYPES, WINDOW_S)
    states = {PLACE: present(TYPES, observed(waiting={PLACE: 2.0 * REQUESTS}), PLACE)}
    tokens = {PLACE: forecast(1.0).high}
    for segment in (early, late):
        assert loaded(segment, tokens, states, WINDOW_S).loads == {
            (PLACE, "quick"): pytest.approx(3.0),
            (PLACE, "slow"): pytest.approx(1.5),
        }
