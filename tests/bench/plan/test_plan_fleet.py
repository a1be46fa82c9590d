"""The fluid queue: what is served in time, and what a replica costs."""

from __future__ import annotations

import pytest

from bench.plan.fleet import SLO_S, THROUGHPUT, below, run
from bench.plan.traffic import STEP_S

FULL = THROUGHPUT * STEP_S  # tokens that one replica serves in a step


def test_a_fleet_that_is_large_enough() -> None:
    found = run([2.0 * FULL] * 10, 0, 2, lambda step, present: present, STEP_S)
    assert found.attainment == 1.0
    assert found.gpu_hours == pytest.approx(2 * 10 * STEP_S / 3600.0)


def test_a_fleet_that_is_too_small_is_late_after_the_slo() -> None:
    found = run([2.0 * FULL], 0, 1, lambda step, present: present, STEP_S)
    # The backlog grows by one replica's throughput each second.
    assert found.attainment == pytest.approx(SLO_S / STEP_S)


def test_a_backlog_is_served_later() -> None:
    found = run([2.0 * FULL, 0.0, 0.5 * FULL], 0, 1, lambda step, present: present, STEP_S)
    assert found.attainment == pytest.approx((2.0 * SLO_S / STEP_S + 0.5) / 2.5)


def test_a_start_serves_after_the_lead_time_and_costs_before() -> None:
    found = run([1.0 * FULL, 2.0 * FULL], 0, 1, lambda step, present: 2, STEP_S)
    assert found.attainment == 1.0
    assert found.gpu_hours == pytest.approx(2 * 2 * STEP_S / 3600.0)
    late = run([2.0 * FULL, 2.0 * FULL], 0, 1, lambda step, present: 2, STEP_S)
    assert late.attainment < 0.1


def test_a_stop_is_immediate() -> None:
    wanted = [3, 1, 1]
    found = run([0.5 * FULL] * 3, 0, 2, lambda step, present: wanted[step], STEP_S)
    assert found.gpu_hours == pytest.approx((3 + 1 + 1) * STEP_S / 3600.0)


def test_a_longer_lead_time() -> None:
    found = run([FULL, FULL, FULL, 2.0 * FULL], 0, 1, lambda step, present: 2, 3.0 * STEP_S)
    assert found.attainment == 1.0
    late = run([FULL, FULL, 2.0 * FULL], 0, 1, lambda step, present: 2, 3.0 * STEP_S)
    assert late.attainment < 1.0


def test_the_newest_starts_are_cancelled_first() -> None:
    wanted = [2, 4, 2, 1]
    found = run([0.5 * FULL] * 4, 0, 1, lambda step, present: wanted[step], 3.0 * STEP_S)
    assert found.gpu_hours == pytest.approx(sum(wanted) * STEP_S / 3600.0)
    assert found.attainment == 1.0


def test_only_the_steps_from_the_first_are_served() -> None:
    asked: list[int] = []

    def controller(step: int, present: int) -> int:
        asked.append(step)
        return present

    run([FULL] * 5, 3, 1, controller, STEP_S)
    assert asked == [3, 4]


def test_the_share_of_a_step_below_a_limit() -> None:
    assert below(0.0, 10.0, 5.0) == 0.5
    assert below(10.0, 0.0, 5.0) == 0.5
    assert below(6.0, 10.0, 5.0) == 0.0
    assert below(7.0, 7.0, 5.0) == 0.0
    assert below(0.0, 4.0, 5.0) == 1.0
