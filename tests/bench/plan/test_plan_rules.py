"""The rules without a forecast."""

from __future__ import annotations

import pytest

from bench.plan.contestants import hpa_controller, reactive_controller, sageserve_controller
from bench.plan.fleet import STEP_S, THROUGHPUT, Controller, Demand, PoolKey, Seen, World

FULL = THROUGHPUT * STEP_S
KEY = PoolKey("", "gpu")


def world(*loads: float) -> World:
    return World("x", {"": Demand("x", tuple(load * FULL for load in loads), 0.8)}, 300.0)


def asked(
    rule: Controller, step: int, present: int, serving: int | None = None, queue: float = 0.0
) -> int:
    """The replicas that a rule asks for. `queue`: in replicas for one step."""
    serves = present if serving is None else serving
    return rule(step, Seen({KEY: present}, {KEY: serves}, {"": queue * FULL}))[KEY]


def test_the_reactive_rule_sees_the_last_step_only() -> None:
    rule = reactive_controller(world(1.0, 4.0, 9.0), 0.5)
    assert asked(rule, 1, 2) == 2
    assert asked(rule, 2, 2) == 8


@pytest.mark.parametrize("make", [reactive_controller, hpa_controller])
def test_the_waiting_tokens_are_demand(make: type) -> None:
    assert asked(make(world(2.0), 0.5), 1, 4, queue=1.0) == 6


def test_the_hpa_keeps_its_target() -> None:
    steps = world(4.0, 4.3, 8.0, 2.0, 2.0, 2.0)
    rule = hpa_controller(steps, 0.5)
    assert asked(rule, 1, 4) == 8
    assert asked(rule, 2, 8) == 8  # 8 % above the target is within the tolerance
    assert asked(rule, 3, 8) == 16
    assert asked(rule, 4, 16) == 16  # the wish of five minutes ago counts
    assert asked(rule, 5, 16) == 4


def test_sageserves_rule_starts_one_replica_at_a_time() -> None:
    rule = sageserve_controller(world(9.0))
    assert asked(rule, 1, 4) == 5
    assert asked(rule, 1, 5, serving=4) == 5  # the first one does not serve yet
    assert asked(rule, 1, 18) == 18
