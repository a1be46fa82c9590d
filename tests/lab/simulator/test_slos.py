"""SLOs and the gain in a simulation: of classes, of keys, and stated by clients.

In the small worlds a prompt of 100 tokens takes 110 ms of prefill and a decode step 20 ms; the
network takes 1 ms each way.
"""

from __future__ import annotations

import pytest

from router.config.model import Classes, CriticalClass, HighClass
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
