"""SLOs and the gain in a simulation: of classes, of keys, and stated by clients.

In the small worlds a prompt of 100 tokens takes 110 ms of prefill and a decode step 20 ms; the
network takes 1 ms each way.
"""

import pytest

from router.config.model import Classes, HighClass
from router.lab.simulator.simulation import Simulation
from router.lab.simulator.traffic import Arrival
from tests.lab.simulator.worlds import Kept, Script, world

WEIGHT = 3.0
CLASSES = Classes(high=HighClass(ttft_slo_s=0.25, tpot_slo_s=0.05, weight=WEIGHT))


def gain(kept: Kept, number: int = 0) -> tuple[float, float]:
    """Tokens on time, and tokens that could have been."""
    one = kept[number]
    return one.gain_achieved / WEIGHT, one.gain_attainable / WEIGHT


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
