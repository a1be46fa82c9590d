"""What simulated routers know of prefixes: an estimate, or exactly what the engines' events say.

The estimate is limited by the size of the engines' caches, and by the configured number of leading
blocks.
"""

from dataclasses import replace
from typing import Any

import pytest

from router.config.varied import varied
from router.lab.simulator.scenario import Fault, Scenario
from router.lab.simulator.simulation import Simulation
from router.lab.simulator.traffic import Arrival
from tests.addons.needed import needs
from tests.lab.simulator.worlds import BLOCK, Kept, Script, blocks, world


def test_what_the_index_may_hold_is_what_the_engine_has_room_for() -> None:
    arrivals = [Arrival(number, 0.1 * number, 100, 3, blocks(100, 1)) for number in range(5)]
    scenario = world(replicas=3, policy="kv_aware", interval_s=0.1)
    simulation = Simulation(scenario, Script(arrivals), Kept())
    simulation.run()
    router = simulation.routers[0]
    core = scenario.core
    for replica in router.fleet.replicas.values():
        assert replica.kv_tokens == core.num_blocks * core.block_size  # known by polls
        assert router.knowledge.prefixes.capacity(replica) == core.num_blocks
    view = router.view(Arrival(0, 0.0, 1000, 1, blocks(1000, 1)), None)
    assert (view.prompt_tokens, view.block_tokens) == (1000, BLOCK)


# -- exact knowledge ------------------------------------------------------------------------------


def exact(**changes: Any) -> Scenario:
    scenario = world(policy="kv_aware", interval_s=0.1, **changes)
    return replace(scenario, config=varied(scenario.config, prefix={"exact": True}))


def asks(count: int, documents: int, **facts: Any) -> list[Arrival]:
    """Requests about a few documents; every other token of a prompt is its own."""
    arrivals = []
    for number in range(count):
        prompt = blocks(96, number % documents) + blocks(96, 1000 + number)
        arrivals.append(Arrival(number, 0.4 * number, 200, 3, prompt, **facts))
    return arrivals


@needs("kv_events")
def test_every_router_knows_what_the_engines_hold() -> None:
    kept = Kept()
    scenario = replace(exact(replicas=3), routers=4, seed=5)
    simulation = Simulation(scenario, Script(asks(60, 5)), kept)
    simulation.run()
    hits = [outcome.cached_tokens for outcome in kept.outcomes]
    assert [outcome.expected_tokens for outcome in kept.outcomes] == hits
    assert hits.count(96) >= 50  # a document is prefilled about once in the whole fleet
    for router in simulation.routers:
        for replica, engine in router.engines.items():
            assert router.exact is not None and router.exact.is_complete(replica)
            assert router.exact.entries(replica) == len(engine.core.kv.hashes())
            assert engine.core.kv_log == []


@needs("kv_events")
def test_the_first_events_of_a_restarted_engine_drop_what_it_held() -> None:
    kept = Kept()
    fault = Fault(at=4.3, replica=0, kind="kill", until=4.35)
    scenario = replace(exact(replicas=1), routers=2, faults=(fault,))
    simulation = Simulation(scenario, Script(asks(20, 1)), kept)
    simulation.run()
    hits = [outcome.cached_tokens for outcome in kept.outcomes]
    expected = [outcome.expected_tokens for outcome in kept.outcomes]
    assert hits == [0, *[96] * 10, 0, *[96] * 8]
    # A restarted engine publishes its first event when it has stored its first block.
    assert expected == [0, *[96] * 19]
    for router in simulation.routers:
        ((replica, engine),) = router.engines.items()
        assert router.exact is not None
        assert router.exact.entries(replica) == len(engine.core.kv.hashes())


# -- requests of several routers ------------------------------------------------------------------


def test_a_tenant_uses_its_own_routers() -> None:
    kept = Kept()
    scenario = replace(world(replicas=2), routers=4, routers_per_tenant=2)
    arrivals = [one for n in range(3) for one in asks(40, 1, tenant=f"t{n}")]
    arrivals.sort(key=lambda one: (one.at, one.tenant))
    for number, one in enumerate(arrivals):
        one.number = number
    Simulation(scenario, Script(arrivals), kept).run()
    used: dict[str, set[int]] = {}
    for outcome in kept.outcomes:
        used.setdefault(outcome.arrival.tenant, set()).add(outcome.router)
    assert used == {"t0": {0, 1}, "t1": {2, 3}, "t2": {0, 1}}


def test_a_tenant_cannot_have_more_routers_than_there_are() -> None:
    with pytest.raises(ValueError, match="routers_per_tenant"):
        replace(world(), routers=2, routers_per_tenant=3)
