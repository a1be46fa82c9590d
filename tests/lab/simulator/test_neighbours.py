"""Requests of other clients, sent straight to a replica of the simulated fleet."""

from math import inf

import pytest

from router.core.errors import Reason
from router.lab.simulator.scenario import Fault, Group, Neighbour, Scenario
from router.lab.simulator.simulation import Simulation, simulate
from router.lab.simulator.traffic import Arrival
from tests.lab.simulator.worlds import CORE, TIMING, Kept, Script, world

NET = 0.001


def long(at: float = 0.0, tokens: int = 3000, replica: int = 0) -> Neighbour:
    return Neighbour(at=at, replica=replica, prompt_tokens=tokens, output_tokens=2)


def test_a_request_waits_for_the_prefill_of_a_neighbour() -> None:
    """The prompt takes three steps of 1,024, 1,024 and 952 tokens; the last one has room left."""
    kept = Kept()
    totals = simulate(world(neighbours=(long(),)), Script([Arrival(0, 0.5, 50, 1)]), kept)
    assert kept[0].ttft_s == pytest.approx(3 * 0.010 + 3.050 - 0.5 + NET)
    assert totals.requests == 1
    assert totals.engines[0].requests == 2


def test_the_engines_count_the_tokens_that_they_compute() -> None:
    arrivals = [Arrival(0, 0.0, 50, 1), Arrival(1, 10.0, 70, 1)]
    totals = simulate(world(neighbours=(long(),)), Script(arrivals), Kept())
    assert totals.engines[0].prefilled_tokens == 3000 + 50 + 70


def test_a_router_sees_neighbours_in_the_metrics_only() -> None:
    simulation = Simulation(
        world(interval_s=0.5, neighbours=(long(at=1.0), long(at=1.0))),
        Script([Arrival(0, 8.0, 10, 1)]),
        Kept(),
    )
    replica = simulation.routers[0].fleet.replicas["r0"]
    seen = {}

    def look(now: float) -> None:
        seen[now] = (replica.load, replica.inflight)

    for when in (1.01, 3.0):
        simulation.clock.at(when, look)
    simulation.run()
    assert (seen[1.01], seen[3.0]) == ((0, 0), (2, 0))


def test_neighbours_fill_the_kv_cache_and_others_are_preempted() -> None:
    """Four neighbours grow to 4,096 tokens together, which is the whole cache."""
    filling = tuple(
        Neighbour(at=0.01 * number, replica=0, prompt_tokens=500, output_tokens=524)
        for number in range(4)
    )
    arrivals = [Arrival(0, 2.5, 200, 400)]
    kept = Kept()
    totals = simulate(world(neighbours=filling), Script(arrivals), kept)
    alone = simulate(world(), Script(arrivals), Kept())
    assert kept[0].reason is Reason.OK
    assert (totals.engines[0].preemptions > 0, alone.engines[0].preemptions) == (True, 0)
    # What was lost is computed again.
    assert totals.engines[0].prefilled_tokens > 4 * 500 + 200


def test_the_run_ends_after_the_last_neighbour() -> None:
    lasting = Neighbour(at=0.0, replica=0, prompt_tokens=10, output_tokens=500)
    totals = simulate(world(neighbours=(lasting,)), Script([Arrival(0, 0.0, 10, 1)]), Kept())
    assert totals.seconds > 499 * 0.020
    assert totals.engines[0].finished == 2


def test_a_dead_engine_loses_neighbours_and_takes_none() -> None:
    kill = Fault(at=1.0, replica=0, kind="kill", until=inf)
    totals = simulate(
        world(replicas=2, faults=(kill,), neighbours=(long(), long(at=2.0))),
        Script([Arrival(0, 3.0, 10, 1)]),
        Kept(),
    )
    assert [(engine.requests, engine.finished) for engine in totals.engines] == [(1, 0), (1, 1)]


def test_a_neighbour_larger_than_the_kv_cache_is_refused() -> None:
    huge = long(tokens=5000)
    totals = simulate(world(neighbours=(huge,)), Script([Arrival(0, 1.0, 10, 1)]), Kept())
    assert totals.engines[0].requests == 1


def test_a_node_has_the_replicas_of_its_groups() -> None:
    def group(replicas: int, node: str) -> Group:
        return Group(replicas=replicas, core=CORE, timing=TIMING, node=node)

    scenario = Scenario(groups=(group(2, "a"), group(1, "b"), group(2, "a")))
    assert scenario.on_node("a") == [0, 1, 3, 4]
    assert scenario.on_node("b") == [2]
    assert scenario.on_node("c") == []


@pytest.mark.parametrize(
    "wrong", [{"at": -1.0}, {"at": inf}, {"prompt_tokens": 0}, {"output_tokens": 0}]
)
def test_neighbours_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    right = {"at": 1.0, "replica": 0, "prompt_tokens": 10, "output_tokens": 1}
    Neighbour(**right)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="neighbour"):
        Neighbour(**{**right, **wrong})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="does not exist"):
        world(neighbours=(long(replica=1),))
