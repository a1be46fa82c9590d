"""The oracle of the simulated bench: its choices follow the engines' true state."""

from __future__ import annotations

import re

import pytest

from bench.fleet.simulated import matrix, oracle
from bench.fleet.simulated.task import Result
from bench.fleet.simulated.worlds import World, worlds
from router.lab.simulator.simulation import Simulation

REQUESTS = 400


def world(name: str) -> World:
    return next(one for one in worlds(REQUESTS) if one.name == name)


def ran(name: str, policy: str, seed: int = 1) -> Result:
    return matrix.task(world(name), policy, seed).run()


@pytest.mark.parametrize(("name", "share"), [("chat", 0.8), ("unique", 0.95)])
def test_the_oracle_is_faster_than_a_policy_that_sees_nothing(name: str, share: float) -> None:
    assert ran(name, oracle.NAME).ttft_p90 < share * ran(name, "round_robin").ttft_p90


def test_without_reuse_it_is_no_worse_than_the_least_load() -> None:
    assert ran("unique", oracle.NAME).ttft_p90 <= 1.02 * ran("unique", "least_load").ttft_p90


def test_it_never_sends_to_a_stalled_engine() -> None:
    """A frozen engine takes no time to a first token that any other one would not beat."""
    task = matrix.task(world("unique"), oracle.NAME, 1)
    simulation = Simulation(task.scenario, task.traffic(), _Nothing())
    oracle.install(simulation)
    simulation.engines[0].core.stall(0.0)
    simulation.clock.at(30.0, simulation.engines[0].core.resume)
    simulation.run()
    others = [engine.core.finished for engine in simulation.engines[1:]]
    assert simulation.engines[0].core.finished < min(others)


def test_the_default_is_compared_with_it_over_the_scenarios() -> None:
    policies = [matrix.DEFAULT, oracle.NAME]
    found = matrix.run(policies, requests=matrix.QUICK)
    (remark,) = (one for one in found.remarks if "oracle's" in one)
    assert re.match(r"kv_aware's p90 is [0-9.]+ times the oracle's in the geometric", remark)
    found = matrix.run([matrix.DEFAULT], requests=matrix.QUICK)
    assert not any("oracle" in one for one in found.remarks)


class _Nothing:
    def ended(self, outcome: object) -> None:
        pass

    def sampled(self, now: float, loads: object) -> None:
        pass
