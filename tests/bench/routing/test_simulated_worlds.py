"""The scenarios of the matrix: each can be played and has its stated load."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest

from bench.fleet.simulated.matrix import task
from bench.fleet.simulated.worlds import (
    Warmed,
    World,
    worlds,
)

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
