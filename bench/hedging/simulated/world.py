"""The fleet and the traffic of the sweeps: policies, budgets and loads. (The goals have `nodes`.)

Replicas of an 8B model on one A100, without a queue. Prompts share no prefix (median 3,000 tokens,
lognormal, 9,000 at most), so that affinity has no effect. Every fifth request is urgent; all
classes have the same length distribution, so that a fifth of the prefill tokens is urgent too. One
attempt in twenty takes ten times as long to its first token, on any replica. Its engine is free
meanwhile (`router.simulator.scenario.Straggling`), so these stragglers are the cheapest to hedge.

Load is a share of the rate at which the fleet saturates without a cache hit
(`bench.fleet.capacity`). Must never know whether hedging is on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice

from bench.fleet.simulated.worlds import FLEET, cold_rate
from router.config.model import Hedging
from router.config.varied import varied
from router.simulator.scenario import Scenario, Straggling, resized
from router.simulator.traffic import Traffic
from router.simulator.workloads import Mix, Unique

LOAD = 0.5
OTHER = "normal"
MOST_URGENT = "critical"  # the only class that the policy `immediate` copies
URGENT_SHARE = 0.2  # share of the requests, and of the prefill tokens
STRAGGLING = Straggling(share=0.05, factor=10.0)
_LAW = 20_000  # number of requests from which the workload's lengths are estimated


@dataclass(frozen=True, slots=True)
class Extent:
    """Amount of simulated traffic of each run."""

    replicas: int = 100
    measured_s: float = 400.0
    warm_s: float = 60.0  # seconds that are not counted: batches fill, the hedger learns

    @classmethod
    def quick(cls) -> Extent:
        return cls(8, 20.0, 10.0)

    @property
    def until_s(self) -> float:
        return self.warm_s + self.measured_s


def fleet(replicas: int) -> Scenario:
    # Replica loads are not sampled: no figure of this bench uses them.
    return replace(resized(FLEET, replicas), straggling=STRAGGLING, sample_s=0.0)


def hedged(scenario: Scenario, hedging: Hedging) -> Scenario:
    """The same scenario with other rules for hedging."""
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
    """A share `urgent` of the requests has the class MOST_URGENT, the others are normal."""
    parts = [
        Unique(rate=rate * share, duration_s=duration_s, seed=2 * seed + place, priority=priority)
        for place, (priority, share) in enumerate(((MOST_URGENT, urgent), (OTHER, 1.0 - urgent)))
        if share > 0.0
    ]
    return Mix(*parts, name="unique prompts")
