"""The scripts of the four scenarios match their names."""

from __future__ import annotations

import pytest

from bench.fleet import engines, scenarios

SPEC = engines.Spec()


def test_counting_begins_before_the_first_request() -> None:
    for script in (
        scenarios.system_prompt(20, 0.7, 1, SPEC),
        scenarios.identical(20, 1),
        scenarios.cold_start(20, 0.7, 1, SPEC),
    ):
        assert script.measure_from == 0.0
        assert script.conversations[0].at >= scenarios.LEAD_S
        assert script.conversations[-1].at < script.until


@pytest.mark.parametrize(("last", "is_judged"), [(6.0, False), (0.0, False), (30.0, True)])
def test_a_restarted_replica_that_is_hardly_asked_is_not_judged(
    last: float, is_judged: bool
) -> None:
    outcome = scenarios.Outcome("back", 1.1, 475 + round(last), [95.0] * 5 + [last])
    scenarios.require_use(outcome)
    assert (outcome.hotspot is not None) == is_judged
    assert bool(outcome.problems) != is_judged
