"""SLOs and the gain in a simulation: of classes, of keys, and stated by clients.

In the small worlds a prompt of 100 tokens takes 110 ms of prefill and a decode step 20 ms; the
network takes 1 ms each way.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from router.config.keys import KeyLine
from router.config.model import Classes, CriticalClass, HighClass, Queue, QueueGates
from router.core.errors import Reason
from router.lab.simulator.scenario import Scenario
from router.lab.simulator.simulation import Simulation, simulate
from router.lab.simulator.traffic import Arrival
from tests.lab.simulator.worlds import Kept, Script, world

WEIGHT = 3.0
CLASSES = Classes(high=HighClass(ttft_slo_s=0.25, tpot_slo_s=0.05, weight=WEIGHT))


def play(scenario: Scenario, *arrivals: Arrival) -> Kept:
    kept = Kept()
    simulate(scenario, Script(arrivals), kept)
    return kept


def gain(kept: Kept, number: int = 0) -> tuple[float, float]:
    """Tokens on time, and tokens that could have been."""
    one = kept[number]
    return one.gain_achieved / WEIGHT, one.gain_attainable / WEIGHT


def test_a_request_within_its_slos_has_the_whole_gain() -> None:
    kept = play(world(classes=CLASSES), Arrival(0, 0.0, 100, 9, priority="high"))
    assert gain(kept) == (9.0, 9.0)


@pytest.mark.parametrize(
    ("slos", "on_time"),
    [
        ({"ttft_slo_s": 0.0125}, 5.0),  # the first is 99.5 ms late, each further one 30 ms less
        ({"tpot_slo_s": 0.00625}, 9.0),  # 138 ms ahead at the first token: enough for 9 tokens
        ({"ttft_slo_s": 0.125, "tpot_slo_s": 0.00625}, 1.0),
        ({"ttft_slo_s": 0.0625, "tpot_slo_s": 0.03}, 4.0),  # 49.5 ms late, 10 ms less each token
    ],
)
def test_stated_slos_apply(slos: dict[str, float], on_time: float) -> None:
    critical = CriticalClass(ttft_slo_s=0.0125, tpot_slo_s=0.00625)
    classes = Classes(critical=critical, high=CLASSES.high)
    kept = play(world(classes=classes), Arrival(0, 0.0, 100, 9, priority="high", **slos))
    assert gain(kept) == (on_time, 9.0)


def test_a_client_cannot_state_an_slo_below_that_of_the_class_above() -> None:
    """Those of class critical are 250 ms and 50 ms, as for class high here."""
    arrival = Arrival(0, 0.0, 100, 9, priority="high", ttft_slo_s=0.001, tpot_slo_s=0.001)
    assert gain(play(world(classes=CLASSES), arrival)) == (9.0, 9.0)


def test_a_key_has_its_own_slos() -> None:
    line = KeyLine(name="a", hash=f"sha256:{1:064x}", ttft_slo_ms=1.0, tpot_slo_ms=1.0)
    scenario = replace(world(classes=CLASSES), keys={"A": line})
    arrival = Arrival(0, 0.0, 100, 9, priority="high", tenant="A", is_known=True)
    assert gain(play(scenario, arrival)) == (0.0, 9.0)
    batch = Arrival(0, 0.0, 100, 9, priority="batch", tenant="A", is_known=True)
    (one,) = play(scenario, batch).outcomes
    assert (one.gain_achieved, one.gain_attainable) == (9.0, 9.0)


def test_a_refused_request_has_no_gain() -> None:
    arrival = Arrival(0, 1.0, 100, 9, priority="high", deadline_s=0.0)
    kept = play(world(classes=CLASSES), arrival)
    assert kept[0].reason is Reason.DEADLINE_PASSED
    assert gain(kept) == (0.0, 1.0)


def test_the_routers_metrics_have_the_sum_of_the_outcomes() -> None:
    arrivals = [Arrival(n, 0.01 * n, 100, 9, priority="high") for n in range(40)]
    kept = Kept()
    simulation = Simulation(world(classes=CLASSES), Script(arrivals), kept)
    simulation.run()
    (metrics,) = [router.metrics for router in simulation.routers]
    high = metrics.classes["high"]
    achieved = sum(one.gain_achieved for one in kept.outcomes)
    assert 0.0 < achieved < 40 * 9 * WEIGHT  # the fleet is too small for all of them
    assert high.gain_achieved == pytest.approx(achieved)
    assert high.gain_attainable == 40 * 9 * WEIGHT
    assert high.slo_whole.requests == high.slo_ttft.requests == 40
    assert 0 < high.slo_ttft.met < 40


@pytest.mark.parametrize("policy", ["edf", "slide"])
def test_a_stated_slo_changes_the_order(policy: str) -> None:
    """The second request to wait states a tighter SLO than the first one, within the same class."""
    gates = QueueGates(waiting=1, prefill_tokens=0)
    rules = Queue(enabled=True, policy=policy, options={"width": 0.0}, gates=gates)
    stated = {2: 3.0}
    arrivals = [
        Arrival(n, 0.001 * n, 100, 2, priority="low", ttft_slo_s=stated.get(n, 0.0))
        for n in range(3)
    ]
    kept = play(world(queue=rules), *arrivals)
    assert kept[0].dispatched < kept[2].dispatched < kept[1].dispatched
