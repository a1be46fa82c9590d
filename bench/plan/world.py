"""Describes what a fleet must serve: the demand of each region, and the kinds of replicas.

Pure. Must never: depend on a controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

from bench.plan.traffic import STEP_S, WEEK, Demand

THROUGHPUT: Final = 3000.0  # tokens/s of a replica within the SLO
MANY: Final = 1000  # more replicas than any demand needs


class PoolKey(NamedTuple):
    """The replicas of one kind in one region."""

    region: str
    kind: str


Counts = Mapping[PoolKey, int]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of replica. All kinds have the throughput `THROUGHPUT`."""

    name: str
    cost: float = 1.0  # per replica and hour
    least: int = 0  # minimum number in each region
    most: int = MANY  # maximum number in each region
    reclaims_per_h: float = 0.0  # probability that a replica is taken away within an hour


GPU: Final = Kind("gpu", least=1)


@dataclass(frozen=True, slots=True)
class World:
    """The demand by region, and what may serve it."""

    name: str
    demands: Mapping[str, Demand]
    lead_s: float  # seconds until a started replica serves
    kinds: tuple[Kind, ...] = (GPU,)
    spill: float = 0.0  # maximum share of a region's demand that another region may serve
    seed: int = 0
    pools: tuple[PoolKey, ...] = field(init=False)

    def __post_init__(self) -> None:
        pools = [PoolKey(region, kind.name) for region in self.demands for kind in self.kinds]
        object.__setattr__(self, "pools", tuple(pools))

    @property
    def costs(self) -> dict[str, float]:
        return {kind.name: kind.cost for kind in self.kinds}

    def load(self, region: str, step: int) -> float:
        """Return the number of replicas that the demand of a step keeps busy."""
        return self.demands[region].tokens[step] / STEP_S / THROUGHPUT

    def peak(self, region: str) -> int:
        """Return the number of replicas for the highest demand of the second week."""
        return ceil(max(self.demands[region].tokens[WEEK:]) / STEP_S / THROUGHPUT)

    def spread(self, region: str, count: int) -> dict[PoolKey, int]:
        """Return `count` replicas of a region by kind, the cheapest kinds first."""
        found = {PoolKey(region, kind.name): kind.least for kind in self.kinds}
        left = count - sum(found.values())
        for kind in sorted(self.kinds, key=lambda kind: kind.cost):
            more = max(0, min(left, kind.most - kind.least))
            found[PoolKey(region, kind.name)] += more
            left -= more
        return found
