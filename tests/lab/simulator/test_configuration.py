"""A configuration's settings of requests apply in a simulation, and groups of replicas differ."""

from dataclasses import replace

import pytest

from policies.contract import make_policy, policy_names
from router.config.model import PolicyChoice
from router.config.varied import varied
from router.core.errors import Reason
from router.lab.simulator.scenario import Group, Scenario, equal, resized
from router.lab.simulator.simulation import Simulation, simulate
from router.lab.simulator.traffic import Arrival
from tests.lab.simulator.worlds import BLOCK, CORE, TIMING, WORLD, Kept, Script, blocks, world


def configured(scenario: Scenario, **sections: object) -> Scenario:
    return replace(scenario, config=varied(scenario.config, **sections))  # type: ignore[arg-type]


def of_two(**second: object) -> tuple[Group, ...]:
    """A replica of the usual kind for model a, and a replica of another kind for model b."""
    first = Group(replicas=1, core=CORE, timing=TIMING, models=("a",))
    return first, replace(first, models=("b",), **second)  # type: ignore[arg-type]


def test_a_request_goes_to_a_replica_that_serves_its_model() -> None:
    scenario = replace(WORLD, groups=of_two())
    arrivals = [Arrival(n, float(n), 100, 2, model="aab"[n % 3]) for n in range(6)]
    kept = Kept()
    simulate(scenario, Script(arrivals), kept)
    assert [kept[n].replica for n in range(6)] == ["r0", "r0", "r1"] * 2


def test_each_group_is_as_fast_as_it_is() -> None:
    scenario = replace(WORLD, groups=of_two(timing=TIMING.scaled(3.0)))
    kept = Kept()
    arrivals = [Arrival(0, 0.0, 100, 1, model="a"), Arrival(1, 0.0, 100, 1, model="b")]
    simulate(scenario, Script(arrivals), kept)
    usual, slow = (kept[n].ttft_s for n in (0, 1))
    assert usual == pytest.approx(0.110 + 0.002) and slow == pytest.approx(0.330 + 0.002)


def test_each_group_has_its_own_sizes() -> None:
    simulation = Simulation(
        replace(WORLD, groups=of_two(core=replace(CORE, num_blocks=64))), Script([]), Kept()
    )
    assert [engine.core.config.num_blocks for engine in simulation.engines] == [256, 64]


def test_another_policy_for_one_model() -> None:
    """Model a uses round robin; requests of model b stay at the replica that holds their prefix."""
    routing = {"models": {"b": PolicyChoice(policy="kv_aware")}}
    scenario = configured(resized(WORLD, 3), routing=routing)
    arrivals = [
        Arrival(n, 2.0 * n, 160, 2, blocks(160, n % 2), model="ab"[n % 2]) for n in range(12)
    ]
    kept = Kept()
    simulate(scenario, Script(arrivals), kept)
    assert len({kept[n].replica for n in range(0, 12, 2)}) == 3
    assert len({kept[n].replica for n in range(1, 12, 2)}) == 1


def test_the_index_covers_as_many_tokens_as_configured() -> None:
    """512 blocks of 512 bytes are 65,536 tokens: 4,096 blocks of the traffic's 16."""
    scenario = configured(WORLD, prefix={"block_bytes": 512})
    router = Simulation(scenario, Script([]), Kept()).routers[0]
    words = blocks(80_000, *range(10))
    view = router.view(Arrival(0, 0.0, 80_000, 1, words), None)
    assert len(view.blocks) == 512 * 512 // 4 // BLOCK


def test_a_fleet_of_several_groups_is_not_resized() -> None:
    with pytest.raises(ValueError, match="unpack"):
        resized(replace(WORLD, groups=of_two()), 5)


def test_groups_that_cannot_be_are_refused() -> None:
    other = replace(CORE, block_size=32)
    with pytest.raises(ValueError, match="same block_size"):
        replace(WORLD, groups=(*equal(1, CORE, TIMING), *equal(1, other, TIMING)))
    with pytest.raises(ValueError, match="at least one group"):
        replace(WORLD, groups=())
    with pytest.raises(ValueError, match="at least one replica"):
        equal(0, CORE, TIMING)


@pytest.mark.parametrize("policy", policy_names())
def test_it_sends_all_requests(policy: str) -> None:
    tokens = 6 * BLOCK
    arrivals = [Arrival(number, 0.1 * number, tokens, 3, blocks(tokens, 1)) for number in range(9)]
    scenario = world(replicas=3, policy=policy, interval_s=0.1)
    simulation = Simulation(scenario, Script(arrivals), Kept())
    totals = simulation.run()
    assert totals.ends == {Reason.OK: len(arrivals)}
    assert totals.policy_errors == 0
    assert type(simulation.routers[0].chooser.policies.default) is type(make_policy(policy))
