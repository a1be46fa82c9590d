"""Simulates a fleet as fluid queues, and computes the GPU-hours, cost and SLO attainment of a
controller.

Each region has one queue. In each step the replicas of the region serve tokens up to their
throughput; the remaining tokens wait. Before tokens wait, a share of them may go to another region
with free replicas. Tokens that wait longer than `SLO_S` miss the SLO. A started replica costs
GPU-hours at once, and serves after the lead time; a stopped replica ends at once. A reclaimed
replica ends at once, without a decision of the controller. The throughput of a replica is the
highest one within the SLO, so waits below that throughput are not modelled.

Pure. Must never depend on which controller it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from bench.plan.traffic import STEP_S
from bench.plan.world import THROUGHPUT, Counts, PoolKey, World

SLO_S: Final = 5.0  # longest wait within the SLO, in seconds


@dataclass(frozen=True, slots=True)
class Seen:
    """What a controller sees at the start of a step. The demand of earlier steps is known, too."""

    present: Counts  # replicas that serve or start
    serving: Counts
    waiting: Mapping[str, float]  # tokens that wait, by region


# A function (step, state of the fleet) -> replicas that should run.
Controller = Callable[[int, Seen], Counts]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run."""

    gpu_hours: float
    attainment: float  # share of the tokens that waited at most `SLO_S`
    cost: float


class _Pool:
    """The serving and the starting replicas of one kind in one region."""

    def __init__(self, serving: int, lead_s: float) -> None:
        self.serving = serving
        self.starting = [0] * round(lead_s / STEP_S)

    @property
    def present(self) -> int:
        return self.serving + sum(self.starting)

    def begin(self) -> None:
        """Begin a step: the oldest starting replicas serve now."""
        self.serving += self.starting.pop(0)

    def scale(self, wanted: int) -> None:
        change = wanted - self.present
        self.starting.append(max(0, change))
        # The replicas that started last are cancelled first.
        for place in range(len(self.starting) - 1, -1, -1):
            cancelled = min(self.starting[place], max(0, -change))
            self.starting[place] -= cancelled
            change += cancelled
        self.serving += min(0, change)


def run(
    world: World, first: int, begin: Counts, controller: Controller, least: float = 0.0
) -> Outcome | None:
    """Simulate the steps from `first` on. The replicas of `begin` serve at the start.

    The controller is asked at the start of each step. The simulation stops, and returns None, as
    soon as an attainment of `least` is out of reach.
    """
    total = sum(sum(demand.tokens[first:]) for demand in world.demands.values())
    late_most = (1.0 - least) * total + 1e-9 * total
    pools = {key: _Pool(begin.get(key, 0), world.lead_s) for key in world.pools}
    chances = {kind.name: kind.reclaims_per_h * STEP_S / 3600.0 for kind in world.kinds}
    costs, rng = world.costs, Random(f"reclaims {world.name} {world.seed}")
    backlogs = dict.fromkeys(world.demands, 0.0)
    hours = cost = late = 0.0
    for step in range(first, len(next(iter(world.demands.values())).tokens)):
        for key, pool in pools.items():
            pool.begin()
            chance = chances[key.kind]
            if chance:
                pool.serving -= sum(rng.random() < chance for _ in range(pool.serving))
        seen = Seen(
            {key: pool.present for key, pool in pools.items()},
            {key: pool.serving for key, pool in pools.items()},
            dict(backlogs),
        )
        wanted = controller(step, seen)
        for key, pool in pools.items():
            pool.scale(wanted[key])
            spent = pool.present * STEP_S / 3600.0
            hours += spent
            cost += spent * costs[key.kind]
        arriving = {region: demand.tokens[step] for region, demand in world.demands.items()}
        rates = {region: _rate(pools, region) for region in world.demands}
        moved = _moved(world, arriving, backlogs, rates)
        for region, rate in rates.items():
            own, backlog = arriving[region] - moved[region], backlogs[region]
            after = max(0.0, backlog + own - rate * STEP_S)
            late += own * (1.0 - below(backlog, after, SLO_S * rate))
            backlogs[region] = after
        if late > late_most:
            return None
    return Outcome(hours, 1.0 - late / total, cost)


def _rate(pools: dict[PoolKey, _Pool], region: str) -> float:
    """Return the tokens/s that the replicas of a region serve."""
    return THROUGHPUT * sum(pool.serving for key, pool in pools.items() if key.region == region)


def _moved(
    world: World,
    arriving: dict[str, float],
    backlogs: dict[str, float],
    rates: dict[str, float],
) -> dict[str, float]:
    """Return the tokens of each region that other regions serve in this step."""
    free = {
        region: rates[region] * STEP_S - backlogs[region] - arriving[region] for region in rates
    }
    moved = dict.fromkeys(rates, 0.0)
    for region, room in free.items():
        left = min(max(0.0, -room), world.spill * arriving[region])
        for other in free:
            taken = min(left, max(0.0, free[other]))
            free[other] -= taken
            left -= taken
            moved[region] += taken
    return moved


def below(begin: float, end: float, limit: float) -> float:
    """Return the share of a step in which a backlog, which changes linearly, is at most `limit`."""
    low, high = min(begin, end), max(begin, end)
    if high <= limit:
        return 1.0
    if low > limit or low == high:
        return 0.0
    return (limit - low) / (high - low)
