"""The coming time in segments."""

from __future__ import annotations

import pytest

from router.lab.plan.decision.present import loaded, present, segments
from router.lab.plan.types_file import parse
from tests.lab.plan.decision.fleets import PLACE, RATE, REQUESTS, WINDOW_S, forecast, observed

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
