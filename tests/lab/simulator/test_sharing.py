"""Simulated routers that tell each other of their requests."""

from collections import Counter
from dataclasses import replace
from statistics import median
from typing import Any

import pytest

from router.config.keys import KeyLine
from router.config.model import Queue
from router.core.errors import Reason
from router.lab.simulator.scenario import Channel, Scenario
from router.lab.simulator.simulation import simulate
from router.lab.simulator.totals import Totals
from router.lab.simulator.traffic import Arrival
from tests.lab.simulator.worlds import WORLD, Kept, Script, blocks, world

PROMPTS = 12
# Each prompt comes four times, to any of the routers.
ARRIVALS = [
    Arrival(number, number * 0.25, 800, 4, blocks=blocks(800, number % PROMPTS))
    for number in range(4 * PROMPTS)
]


def run(routers: int, channel: Channel | None) -> tuple[Totals, int]:
    """The totals, and the prompt tokens that engines found in their caches."""
    scenario = replace(world(replicas=4, policy="kv_aware"), routers=routers, channel=channel)
    kept = Kept()
    totals = simulate(scenario, Script(ARRIVALS), kept)
    return totals, sum(one.cached_tokens for one in kept.outcomes)


def test_routers_find_the_prompts_of_each_other() -> None:
    _, alone = run(1, None)
    _, apart = run(4, None)
    _, together = run(4, Channel())
    assert apart < 0.8 * alone
    assert together >= 0.97 * alone


@pytest.mark.parametrize("channel", [Channel(loss=0.5), Channel(delay_s=2.0), Channel(loss=1.0)])
def test_lost_and_late_messages_fail_no_request(channel: Channel) -> None:
    totals, _ = run(4, channel)
    assert totals.retries == 0
    assert sum(totals.ends.values()) == len(ARRIVALS)
    assert run(4, channel)[0] == totals


def test_lost_messages_tell_nothing() -> None:
    assert run(4, Channel(loss=1.0))[1] == run(4, None)[1]


@pytest.mark.parametrize("wrong", [{"interval_s": 0.0}, {"delay_s": -1.0}, {"loss": 1.5}])
def test_wrong_rules_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Channel(**wrong)


# -- one order ------------------------------------------------------------------------------------


def queued(routers: int, channel: Channel | None, **changes: Any) -> Scenario:
    """A fleet with fewer slots than requests; all requests of one tenant come to one router."""
    scenario = world(
        replicas=2,
        core=replace(WORLD.core, max_num_seqs=4),
        policy="least_load",
        interval_s=0.25,
        **changes,
    )
    each = 1 if routers > 1 else 0
    return replace(scenario, routers=routers, routers_per_tenant=each, channel=channel)


def shares(routers: int, channel: Channel | None) -> float:
    """The tokens of a tenant of weight 4 for each token of a tenant of weight 1."""
    keys = {
        name: KeyLine(name=name, hash=f"sha256:{digit * 64}", weight=weight)
        for name, digit, weight in (("one", "0", 4.0), ("two", "1", 1.0))
    }
    queue = Queue(enabled=True, policy="fair", options={"width": 0.0})
    scenario = queued(routers, channel, queue=queue, keys=keys)
    arrivals = [
        Arrival(number, number * 0.01, 100, 40, tenant=("one", "two")[number % 2], is_known=True)
        for number in range(1600)
    ]
    kept = Kept()
    simulate(scenario, Script(arrivals), kept, until=60.0)
    served: Counter[str] = Counter()
    for one in kept.outcomes:
        if one.reason is Reason.OK and 10.0 <= one.ended < 60.0:
            served[one.arrival.tenant] += one.arrival.prompt_tokens + one.arrival.output_tokens
    return served["one"] / served["two"]


def test_weights_hold_over_routers_if_each_has_all_requests_of_one_tenant() -> None:
    assert shares(2, None) < 1.5
    assert shares(2, Channel()) == pytest.approx(4.0, rel=0.1)
    assert shares(1, None) == pytest.approx(4.0, rel=0.1)


def turns(routers: int, channel: Channel | None) -> float:
    """The requests of class high for each one of class normal; both always wait, each at one
    router."""
    arrivals = [
        Arrival(n, n * 0.005, 100, 40, priority=("high", "normal")[n % 2], tenant=f"t{n % 2}")
        for n in range(4000)
    ]
    kept = Kept()
    scenario = queued(routers, channel, queue=Queue(enabled=True))
    simulate(scenario, Script(arrivals), kept, until=90.0)
    ended = [one for one in kept.outcomes if one.reason is Reason.OK and 45.0 <= one.ended < 90.0]
    served = Counter(one.arrival.priority for one in ended)
    return served["high"] / served["normal"]


def test_classes_take_turns_by_weight_over_routers() -> None:
    alone, apart, together = turns(1, None), turns(2, None), turns(2, Channel())
    assert alone > 2.0
    assert apart < 1.2
    assert together == pytest.approx(alone, rel=0.15)


def urgent_ttft_s(routers: int, channel: Channel | None) -> float:
    """The median TTFT of class high, whose requests all come to one router, while batch of another
    router keeps all slots busy."""
    arrivals = [Arrival(n, 0.0, 100, 40, priority="batch", tenant="one") for n in range(400)]
    arrivals += [
        Arrival(400 + n, 5.0 + 0.5 * n, 100, 10, priority="high", tenant="two") for n in range(40)
    ]
    kept = Kept()
    queue = Queue(enabled=True)
    simulate(queued(routers, channel, queue=queue), Script(arrivals), kept)
    assert all(one.reason is Reason.OK for one in kept.outcomes)
    return median(one.ttft_s for one in kept.outcomes if one.arrival.priority == "high")


def test_batch_at_one_router_waits_for_an_urgent_request_at_another() -> None:
    alone = urgent_ttft_s(1, None)
    apart = urgent_ttft_s(2, None)
    together = urgent_ttft_s(2, Channel())
    assert together <= alone + 0.05
    assert apart > together
