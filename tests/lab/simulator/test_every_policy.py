"""Every routing policy runs in a simulated router without an error."""

from __future__ import annotations

import pytest

from policies.contract import make_policy, policy_names
from router.core.errors import Reason
from router.lab.simulator.simulation import Simulation
from router.lab.simulator.traffic import Arrival
from tests.lab.simulator.worlds import BLOCK, Kept, Script, blocks, world


@pytest.mark.parametrize("policy", policy_names())
def test_it_sends_all_requests(policy: str) -> None:
    tokens = 6 * BLOCK
    arrivals = [Arrival(number, 0.1 * number, tokens, 3, blocks(tokens, 1)) for number in range(9)]
    scenario = world(replicas=3, policy=policy, interval_s=0.1)
    simulation = Simulation(scenario, Script(arrivals), Kept())
    totals = simulation.run()
    assert totals.ends == {Reason.OK: len(arrivals)}
    assert totals.policy_errors == 0
    assert type(simulation.routers[0].policies.default) is type(make_policy(policy))
