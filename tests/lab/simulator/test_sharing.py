"""Simulated routers that tell each other of their requests."""

from dataclasses import replace

import pytest

from router.lab.simulator.scenario import Sharing
from router.lab.simulator.simulation import simulate
from router.lab.simulator.totals import Totals
from router.lab.simulator.traffic import Arrival
from tests.lab.simulator.worlds import Kept, Script, blocks, world

PROMPTS = 12
# Each prompt comes four times, to any of the routers.
ARRIVALS = [
    Arrival(number, number * 0.25, 800, 4, blocks=blocks(800, number % PROMPTS))
    for number in range(4 * PROMPTS)
]


def run(routers: int, sharing: Sharing | None) -> tuple[Totals, int]:
    """The totals, and the prompt tokens that engines found in their caches."""
    scenario = replace(world(replicas=4, policy="kv_aware"), routers=routers, sharing=sharing)
    kept = Kept()
    totals = simulate(scenario, Script(ARRIVALS), kept)
    return totals, sum(one.cached_tokens for one in kept.outcomes)


def test_routers_find_the_prompts_of_each_other() -> None:
    _, alone = run(1, None)
    _, apart = run(4, None)
    _, together = run(4, Sharing())
    assert apart < 0.8 * alone
    assert together >= 0.97 * alone


@pytest.mark.parametrize("sharing", [Sharing(loss=0.5), Sharing(delay_s=2.0), Sharing(loss=1.0)])
def test_lost_and_late_messages_fail_no_request(sharing: Sharing) -> None:
    totals, _ = run(4, sharing)
    assert totals.retries == 0
    assert sum(totals.ends.values()) == len(ARRIVALS)
    assert run(4, sharing)[0] == totals


def test_lost_messages_tell_nothing() -> None:
    assert run(4, Sharing(loss=1.0))[1] == run(4, None)[1]


@pytest.mark.parametrize("wrong", [{"interval_s": 0.0}, {"delay_s": -1.0}, {"loss": 1.5}])
def test_wrong_rules_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Sharing(**wrong)
