"""The router predicts the first tokens and the decode speed of emulated engines."""

from dataclasses import replace

import pytest

from router.fleet.replica import Replica
from router.lab.emulator.core.timing import PROFILES, CoreConfig
from router.lab.simulator.scenario import Fault, Scenario, equal
from router.lab.simulator.simulation import Simulation
from router.lab.simulator.workloads import Lengths, Unique
from tests.lab.simulator.worlds import Kept, world

TIMING = PROFILES["realistic"]
CORE = CoreConfig(num_blocks=2000, block_size=128)
BLIND = world(policy="round_robin", interval_s=1.0)


def play(scenario: Scenario, rate: float, seconds: float) -> list[Replica]:
    traffic = Unique(
        rate=rate,
        duration_s=seconds,
        prompt=Lengths(2000.0, 0.6, 12_000),
        output=Lengths(100.0, 0.4, 300),
    )
    simulation = Simulation(scenario, traffic, Kept())
    (router,) = simulation.routers
    simulation.run()
    return list(router.fleet.replicas.values())


def test_the_times_of_one_engine_are_predicted() -> None:
    fleet = replace(BLIND, groups=equal(1, CORE, TIMING))
    (replica,) = play(fleet, 1.0, 600.0)
    learner = replica.learned.speeds
    assert learner.ttft_error.count > 500
    assert learner.ttft_error.absolute_total / learner.ttft_error.count < 0.15
    assert learner.step_error.absolute_total / learner.step_error.count < 0.03
    # The prompts that arrive during a stream are not known at its dispatch.
    assert learner.tpot_error.absolute_total / learner.tpot_error.count < 0.25


def test_each_replica_has_its_own_speed() -> None:
    groups = (*equal(1, CORE, TIMING), *equal(1, CORE, TIMING.scaled(2.0)))
    fast, slow = play(replace(BLIND, groups=groups), 1.5, 600.0)
    ratio = slow.speed.ttft_s(0, 2000, 0, 10) / fast.speed.ttft_s(0, 2000, 0, 10)
    assert ratio == pytest.approx(2.0, rel=0.15)
    for one in (fast, slow):
        one.speed.delay_share = 0.0
    steps = slow.speed.tpot_s(10, 20_000) / fast.speed.tpot_s(10, 20_000)
    assert steps == pytest.approx(2.0, rel=0.15)


def test_a_slow_replica_is_predicted_as_slow_soon() -> None:
    fault = Fault(at=300.0, replica=0, kind="slow", until=1000.0, factor=2.0)
    fleet = replace(BLIND, groups=equal(1, CORE, TIMING))
    (before,) = play(fleet, 0.7, 360.0)
    (after,) = play(replace(fleet, faults=(fault,)), 0.7, 360.0)
    ratio = after.speed.ttft_s(0, 2000, 0, 10) / before.speed.ttft_s(0, 2000, 0, 10)
    assert ratio == pytest.approx(2.0, rel=0.2)
