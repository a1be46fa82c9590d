"""The simulator decides with the proxy's own objects: no copies, no stand-ins, no subclasses.

What the proxy uses is looked up where the proxy looks it up, in `router.app.parts`,
`router.dispatch` and the emulator's server; what the simulator uses is found in a built simulation
after it has run.
"""

from __future__ import annotations

from typing import Any

import pytest

import policies.contract
import router.app.parts as proxy
import router.core.lease
import router.dispatch.attempts as attempts
import router.dispatch.dispatcher as dispatcher
import router.dispatch.exchange as exchange
import router.dispatch.request_driver as request_driver
import router.dispatch.retry as retry
import router.emulator.engine as emulator
import router.fleet.health
import router.fleet.knowledge as knowledge
import router.fleet.poller as poller
import router.fleet.replica as replicas
from policies.contract import make_policy, policy_names
from router.dispatch.chooser import Policies
from router.simulator.exchange import SimulatedExchange
from router.simulator.scenario import Polls
from router.simulator.simulation import Simulation
from router.simulator.traffic import Arrival
from tests.simulator.worlds import BLOCK, Kept, Script, blocks, world


def run(policy: str) -> tuple[Simulation, SimulatedExchange]:
    """A simulation that has run, and one of its requests while it was under way."""
    arrivals = [Arrival(number, 0.1 * number, 100, 3, blocks(100, 1)) for number in range(5)]
    scenario = world(replicas=3, policy=policy, polls=Polls(interval_s=0.1))
    simulation = Simulation(scenario, Script(arrivals), Kept())
    seen: list[SimulatedExchange] = []
    router = simulation.routers[0]
    simulation.clock.at(0.05, lambda now: seen.extend(router.exchanges.values()))
    simulation.run()
    return simulation, seen[0]


@pytest.mark.parametrize("policy", policy_names())
def test_policies_are_made_by_the_proxys_own_hand(policy: str) -> None:
    simulation, _ = run(policy)
    mine = simulation.routers[0].policies
    assert type(mine) is proxy.Policies is Policies
    assert type(mine.default) is type(make_policy(policy))
    assert isinstance(mine.default, policies.contract.RoutingPolicy)


def test_what_decides_is_the_same_class_in_both() -> None:
    simulation, under_way = run("kv_aware")
    router_ = simulation.routers[0]
    replica = router_.fleet.replicas["r0"]
    (attempt,) = under_way.driver.life.attempts
    same: list[tuple[object, type]] = [
        (router_.fleet, proxy.Fleet),
        (router_.knowledge, proxy.Knowledge),
        (router_.chooser, proxy.Chooser),
        (router_.metrics, proxy.Metrics),
        (router_.hedger, proxy.Hedger),
        (router_.hedger, dispatcher.Hedger),
        (router_.budget, dispatcher.Budget),
        (router_.budget, retry.Budget),
        (router_.knowledge.prefixes, knowledge.PrefixIndex),
        (replica, proxy.Replica),
        (replica.health, replicas.Health),
        (replica.health, router.fleet.health.Health),
        (replica.signals, poller.Signals),
        (under_way.driver, request_driver.RequestDriver),
        (under_way.driver.life, attempts.Life),
        (under_way.view, exchange.RequestView),
        (attempt, attempts.Attempt),
        (attempt.lease, router.core.lease.Lease),
        (simulation.engines[0].core, emulator.EngineCore),
        (simulation.engines[0].core.kv, emulator.EngineCore(*_sizes()).kv.__class__),
    ]
    for found, expected in same:
        assert type(found) is expected


def _sizes() -> tuple[Any, Any]:
    scenario = world()
    return scenario.core, scenario.timing


def test_the_rules_around_them_are_the_same_functions() -> None:
    import router.simulator.exchange as mine
    import router.simulator.signals as mine_signals

    assert mine.RequestDriver is exchange.RequestDriver is request_driver.RequestDriver
    assert mine.Reason is exchange.Reason
    assert attempts.judge is retry.judge
    assert mine_signals.poll_begins is poller.poll_begins


def test_what_the_index_may_hold_is_what_the_engine_has_room_for() -> None:
    simulation, _ = run("kv_aware")
    router_ = simulation.routers[0]
    core = simulation.scenario.core
    for replica in router_.fleet.replicas.values():
        assert replica.kv_tokens == core.num_blocks * core.block_size  # by its polls
        assert router_.knowledge.prefixes.capacity(replica) == core.num_blocks
    view = router_.view(Arrival(0, 0.0, 1000, 1, blocks(1000, 1)))
    assert (view.prompt_tokens, view.block_tokens) == (1000, BLOCK)


def test_a_router_looks_at_as_many_blocks_as_it_is_told() -> None:
    simulation = Simulation(world(prefix_blocks=3), Script([]), Kept())
    view = simulation.routers[0].view(Arrival(0, 0.0, 160, 1, blocks(160, 1)))
    assert view.blocks == blocks(160, 1)[:3]
