"""The fleet and the traffic of the sweeps over policies, budgets and loads. (Those of the goals are
in `nodes`.)

Each replica is an 8B model on one A100; the router's queue is off. Prompts share no prefix, so that
prefix affinity has no effect. Their lengths are lognormal: median 3,000 tokens, at most 9,000.
Every fifth request is urgent; all classes have the same length distribution, so that a fifth of the
prefill tokens is urgent too. One attempt in twenty takes ten times as long to its first token, on
any replica. The attempt does not occupy its engine meanwhile
(`router.lab.simulator.scenario.Straggling`), so such late attempts are the cheapest to hedge.

Load is a share of the rate at which the fleet saturates without a cache hit
(`bench.fleet.capacity`). Must never depend on whether hedging is enabled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

from bench.fleet.simulated.worlds import FLEET, cold_rate
from router.config.model import Hedging
from router.config.varied import varied
from router.lab.simulator.scenario import Scenario, Straggling, resized
from router.lab.simulator.traffic import Traffic
from router.lab.simulator.workloads import Mix, Unique

LOAD = 0.5
OTHER = "normal"
MOST_URGENT = "critical"  # the only class that the policy `immediate` copies
URGENT_SHARE = 0.2  # share of urgent requests, and of their prefill tokens
STRAGGLING = Straggling(share=0.05, factor=10.0)
_LAW = 20_000  # number of requests from which the workload's lengths are estimated


@dataclass(frozen=True, slots=True)
class Extent:
    """Size of the fleet, and length of each run."""

    replicas: int = 100
    measured_s: float = 400.0
    # Seconds that are not counted: batches fill, and the router learns the usual times.
    warm_s: float = 60.0

    @classmethod
    def quick(cls) -> Extent:
        return cls(8, 20.0, 10.0)

    @property
    def until_s(self) -> float:
        return self.warm_s + self.measured_s


def fleet(replicas: int) -> Scenario:
    # `sample_s=0` turns off the samples of replica loads, which this bench does not use.
    return replace(resized(FLEET, replicas), straggling=STRAGGLING, sample_s=0.0)


def hedged(scenario: Scenario, hedging: Hedging) -> Scenario:
    """Return the same scenario with another configuration of hedging."""
    return replace(scenario, config=varied(scenario.config, hedging=hedging))


def saturation(scenario: Scenario) -> float:
    """Requests/s at which the fleet saturates."""
    law = islice(Unique(rate=1.0, duration_s=float("inf"), seed=0), _LAW)
    sizes = [(float(one.prompt_tokens), one.output_tokens) for one in law]
    return cold_rate(scenario, sizes)


def traffic(
    rate: float,
    duration_s: float,
    seed: int,
    urgent: float = URGENT_SHARE,
) -> Traffic:
    """Return traffic in which a share `urgent` is of class MOST_URGENT and the rest of class
    normal.
    """
    parts = [
        Unique(rate=rate * share, duration_s=duration_s, seed=2 * seed + place, priority=priority)
        for place, (priority, share) in enumerate(((MOST_URGENT, urgent), (OTHER, 1.0 - urgent)))
        if share > 0.0
    ]
    return Mix(*parts, name="unique prompts")
