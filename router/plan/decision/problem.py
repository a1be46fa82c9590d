"""The problem that a plan solves, and its solution. Plain values.

A *pool* is the replicas of one type that serve one model in one region. A *segment* is a part of
the coming time in which the starts of the same types are serving already. Loads are in replicas: a
load of 2.5 keeps two and a half replicas busy, if each is used completely.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from router.plan.observed import Place


class PlanError(RuntimeError):
    """No plan keeps the limits, or the solver found none."""


class PoolId(NamedTuple):
    place: Place
    type: str


@dataclass(frozen=True, slots=True)
class Pool:
    """The numbers of replicas that are allowed, and their costs."""

    id: PoolId
    now: int
    low: int  # replicas of the plan, at least: the minimum, or the present ones if none may stop
    high: int  # at most
    cost: float  # of one replica for the period
    start: float  # of one start


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of the coming time. Windows are counted from now."""

    first: int
    end: int  # the window after the last one
    starting: frozenset[str]  # types whose starts serve in this segment
    # The load of the demand of a place, if it is served completely by a type. The region of the
    # place is that of the clients.
    loads: Mapping[tuple[Place, str], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    pools: tuple[Pool, ...]
    segments: tuple[Segment, ...]
    utilisation: float  # share of a replica that may be busy
    # Share of the demand that may move, at most, by (region of the clients, of the replicas).
    shifts: Mapping[tuple[str, str], float] = field(default_factory=dict)
    totals: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by (type, region)

    @property
    def places(self) -> list[Place]:
        """The places with demand, in order."""
        return list(dict.fromkeys(place for each in self.segments for place, _ in each.loads))


@dataclass(slots=True)
class Solution:
    """The replicas of each pool, and how the demand uses them."""

    replicas: dict[PoolId, int] = field(default_factory=dict)
    # Busy replicas by segment and pool.
    used: list[dict[PoolId, float]] = field(default_factory=list)
    # The share of the demand of a place that no replica serves within the limits, by segment.
    short: list[dict[Place, float]] = field(default_factory=list)
    # The largest share of a place's demand, of all segments, that is served in another region.
    shifted: dict[tuple[Place, str], float] = field(default_factory=dict)
    gap: float = 0.0  # relative distance of the cost from the best possible cost, at most

    def add(self, other: Solution) -> None:
        """Add the solution of other pools for the same segments."""
        self.replicas.update(other.replicas)
        self.shifted.update(other.shifted)
        self.gap = max(self.gap, other.gap)
        for mine, more in ((self.used, other.used), (self.short, other.short)):
            mine.extend({} for _ in range(len(more) - len(mine)))
        for number, used in enumerate(other.used):
            self.used[number].update(used)
        for number, short in enumerate(other.short):
            self.short[number].update(short)
