"""Replicas with different context lengths in a simulation: the router's own choice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from router.config.varied import varied
from router.lab.simulator.scenario import Fault, Group, Scenario
from router.lab.simulator.simulation import simulate
from router.lab.simulator.traffic import Arrival
from tests.lab.simulator.worlds import CORE, TIMING, WORLD, Kept, Script, blocks

LONG, SHORT = "r0", "r1"


def world(queue: bool, *faults: Fault) -> Scenario:
    """`r0` has a context of 4,000 tokens, `r1` one of 1,000."""
    long = Group(replicas=1, core=CORE, timing=TIMING, max_model_len=4000)
    config = varied(WORLD.config, queue={"enabled": queue})
    return replace(
        WORLD, groups=(long, replace(long, max_model_len=1000)), config=config, faults=faults
    )


def played(scenario: Scenario, *arrivals: Arrival) -> list[str]:
    kept = Kept()
    simulate(scenario, Script(arrivals), kept)
    return [kept[number].replica for number in range(len(arrivals))]


@pytest.mark.parametrize("queue", [False, True])
def test_a_long_request_goes_to_the_longer_context(queue: bool) -> None:
    arrivals = [Arrival(n, 0.01 * n, 500, 40, max_tokens=2000) for n in range(20)]
    assert played(world(queue), *arrivals) == [LONG] * 20


@pytest.mark.parametrize("queue", [False, True])
def test_the_length_of_a_prompt_is_learned(queue: bool) -> None:
    """At first, a prompt may have 16 bytes per token; the simulator's have 4."""
    arrivals = [Arrival(n, 1.0 * n, 300, 10, blocks(300, n)) for n in range(400)]
    arrivals += [Arrival(400 + n, 400.0 + 0.001 * n, 1200, 10) for n in range(20)]
    assert played(world(queue), *arrivals)[400:] == [LONG] * 20


@pytest.mark.parametrize("queue", [False, True])
def test_a_request_that_fits_nowhere_is_sent_all_the_same(queue: bool) -> None:
    arrivals = [Arrival(n, 0.01 * n, 100, 40, max_tokens=9000) for n in range(20)]
    assert set(played(world(queue), *arrivals)) == {LONG, SHORT}
