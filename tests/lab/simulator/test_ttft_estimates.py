"""The estimates of simulated requests: coverage in a busy queue, and refusals that keep SLOs."""

from dataclasses import replace

import pytest

from router.config.model import Classes, ClassSettings, Queue
from router.core.errors import Reason
from router.lab.emulator.core.timing import PROFILES, CoreConfig
from router.lab.simulator.scenario import equal
from router.lab.simulator.simulation import Simulation
from router.lab.simulator.workloads import Lengths, Unique
from tests.lab.simulator.worlds import Kept, world

CORE = CoreConfig(num_blocks=2000, block_size=128)
SLO_S = 4.0


def play(late: str, rate: float, seconds: float = 400.0) -> tuple[Kept, Simulation]:
    """One engine, which saturates at about 2.5 requests per second."""
    classes = Classes(normal=ClassSettings(ttft_slo_s=SLO_S, late=late))
    fleet = world(policy="round_robin", interval_s=1.0, queue=Queue(), classes=classes)
    traffic = Unique(
        rate=rate,
        duration_s=seconds,
        prompt=Lengths(2000.0, 0.6, 12_000),
        output=Lengths(100.0, 0.4, 300),
        cv=2.0,
        priority="normal",
    )
    kept = Kept()
    groups = equal(1, CORE, PROFILES["realistic"])
    simulation = Simulation(replace(fleet, groups=groups), traffic, kept)
    simulation.run()
    return kept, simulation


def test_the_intervals_cover_the_first_tokens() -> None:
    kept, simulation = play("serve", 2.0)
    given = [one for one in kept.outcomes if one.estimate_s >= 0.0]
    assert len(given) > 0.8 * len(kept.outcomes)
    assert sum(one.queued_s > 0.0 for one in given) > 100
    covered = sum(one.estimate_low_s <= (one.ttft_s or 0.0) <= one.estimate_high_s for one in given)
    assert covered / len(given) == pytest.approx(0.9, abs=0.05)
    (router,) = simulation.routers
    counts = router.metrics.classes["normal"]
    assert (counts.estimates, counts.estimates_kept) == (len(given), covered)


def test_refusals_keep_the_queue_short() -> None:
    """Only the lower bound refuses, so the waits of the others are near the SLO, not below it."""
    everyone, _ = play("serve", 4.0)
    kept, simulation = play("refuse", 4.0)

    def slow_s(found: Kept) -> float:
        served = [one.ttft_s or 0.0 for one in found.outcomes if one.reason is Reason.OK]
        return sorted(served)[int(0.9 * len(served))]

    refused = [one for one in kept.outcomes if one.reason is Reason.TTFT_UNREACHABLE]
    assert slow_s(everyone) > 10.0 * SLO_S
    assert slow_s(kept) < 3.0 * SLO_S
    assert 0.2 < len(refused) / len(kept.outcomes) < 0.7
    assert all(one.estimate_low_s > SLO_S and one.first < 0.0 for one in refused)
    (router,) = simulation.routers
    assert router.queue is not None
    dropped = router.queue.pools.queues[0].counts.dropped
    assert dropped[Reason.TTFT_UNREACHABLE][2] == len(refused)
