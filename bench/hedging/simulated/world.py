"""The fleet and the traffic of the simulated bench.

A hundred replicas, each an 8B model on one A100. Prompts share no prefix (median 3,000 tokens,
lognormal, 9,000 at most), so that affinity has no effect. Every fifth request is urgent; all
classes have the same length distribution, so that a fifth of the prefill tokens is urgent too. One
attempt in twenty takes ten times as long to its first token, on any replica
(`router.simulator.scenario.Straggling`).

Load is a share of the rate at which the fleet saturates without a cache hit
(`bench.fleet.capacity`). Must never know whether hedging is on.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from bench.fleet.simulated.worlds import FLEET, cold_rate
from router.config.model import Hedging
from router.config.varied import varied
from router.simulator.scenario import Scenario, Straggling, resized
from router.simulator.traffic import Traffic
from router.simulator.workloads import Mix, Unique

REPLICAS = 100
URGENT, OTHER = "high", "normal"
MOST_URGENT = "critical"  # the only class that the policy `immediate` copies
URGENT_SHARE = 0.2  # share of the requests, and of the prefill tokens
STRAGGLING = Straggling(share=0.05, factor=10.0)
_LAW = 20_000  # number of requests from which the workload's lengths are estimated


def fleet(replicas: int = REPLICAS) -> Scenario:
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
    urgent_class: str = URGENT,
) -> Traffic:
    """A share `urgent` of the requests has the class named, the others are normal."""
    parts = [
        Unique(rate=rate * share, duration_s=duration_s, seed=2 * seed + place, priority=priority)
        for place, (priority, share) in enumerate(((urgent_class, urgent), (OTHER, 1.0 - urgent)))
        if share > 0.0
    ]
    return Mix(*parts, name="unique prompts")
