"""The oracle of the simulated bench: its choices follow the engines' true state."""

import pickle
import re
from collections import Counter

import pytest

from bench.fleet.simulated import matrix, oracle
from bench.fleet.simulated.matrix import task
from bench.fleet.simulated.task import Result
from bench.fleet.simulated.worlds import Warmed, World, worlds
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


WORLDS = worlds(120)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: f"{world.name} {world.unit}")
def test_every_scenario_can_be_pickled_and_run(world: World) -> None:
    told = pickle.loads(pickle.dumps(task(world, "random", 1)))
    traffic = told.traffic()
    arrivals = list(traffic)
    assert all(one.at >= 0.0 for one in arrivals)
    assert traffic.block_tokens == told.scenario.core.block_size
    for fault in told.scenario.faults:
        assert 0.0 < fault.at < fault.until < world.seconds
        assert fault.replica < world.fleet.replicas


def test_every_group_asks_once_before_the_rest_comes() -> None:
    traffic = Warmed(rate=50.0, duration_s=10.0, warm_s=30.0, groups=20, seed=3)
    arrivals = list(traffic)
    first, rest = arrivals[:20], arrivals[20:]
    assert len({one.blocks[0] for one in first}) == 20
    assert {one.blocks[0] for one in rest} == {one.blocks[0] for one in first}
    assert first[0].at == 0.0
    assert max(one.at for one in first) < 30.0 <= min(one.at for one in rest)
    assert max(one.at for one in rest) < 40.0
    assert len(rest) == pytest.approx(500, rel=0.2)
    assert [one.number for one in arrivals] == list(range(len(arrivals)))
    # Only the prefix is shared, and only within a group.
    assert max(Counter(one.blocks[-1] for one in arrivals).values()) == 1
    depth = traffic.prefix_tokens // traffic.block_tokens
    assert len({one.blocks[depth - 1] for one in arrivals}) == 20
