"""The prefixes that a simulated router remembers: up to the size of its engines' caches, and up to
the configured number of leading blocks.
"""

from __future__ import annotations

from router.simulator.simulation import Simulation
from router.simulator.traffic import Arrival
from tests.simulator.worlds import BLOCK, Kept, Script, blocks, world


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


def test_a_router_uses_the_configured_number_of_blocks() -> None:
    simulation = Simulation(world(prefix_blocks=3), Script([]), Kept())
    view = simulation.routers[0].view(Arrival(0, 0.0, 160, 1, blocks(160, 1)), None)
    assert view.blocks == blocks(160, 1)[:3]
