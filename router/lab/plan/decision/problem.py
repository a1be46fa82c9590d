"""The problem that a plan solves, and its solution.

A *pool* is the replicas of one type that serve one model in one region. A *segment* is a sequence
of coming windows in which replicas of the same types are serving if they are started now. Loads are
in replicas: a load of 2.5 keeps two and a half replicas busy, if each is used completely.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from router.lab.plan.observed import Place


class PlanError(RuntimeError):
    """No plan keeps the limits, or the solver found no plan."""


class PoolId(NamedTuple):
    place: Place
    type: str


@dataclass(frozen=True, slots=True)
class Pool:
    """The replicas that run now, the numbers that are allowed, and their costs."""

    id: PoolId
    now: int
    low: int  # minimum of the plan: the configured one, or the present number if none may stop
    high: int  # maximum of the plan
    cost: float  # cost of one replica for the period of the plan
    start: float  # cost of one start


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of the coming time. Windows are numbered from 0, which begins now."""

    first: int
    end: int  # number of the window after the last window
    starting: frozenset[str]  # types whose replicas, if started now, serve in this segment
    # By place and type: the load if this type serves the whole demand of the place. The region of
    # the place is that of the clients.
    loads: Mapping[tuple[Place, str], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    pools: tuple[Pool, ...]
    segments: tuple[Segment, ...]
    utilisation: float  # maximum busy share of a replica
    # Maximum share of the demand that may move, by (region of the clients, region of the replicas).
    shifts: Mapping[tuple[str, str], float] = field(default_factory=dict)
    # Maximum number of replicas by (type, region).
    totals: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def places(self) -> list[Place]:
        """The places with demand, in the order of the loads."""
        return list(dict.fromkeys(place for each in self.segments for place, _ in each.loads))


@dataclass(slots=True)
class Solution:
    """The replicas of each pool, and how the demand uses them."""

    replicas: dict[PoolId, int] = field(default_factory=dict)
    # The number of busy replicas, by segment and pool.
    used: list[dict[PoolId, float]] = field(default_factory=list)
    # The share of the demand of a place that no replica serves within the limits, by segment.
    short: list[dict[Place, float]] = field(default_factory=list)
    # By place and other region: the share of the place's demand that is served there, in the
    # segment with the largest share.
    shifted: dict[tuple[Place, str], float] = field(default_factory=dict)
    gap: float = 0.0  # the cost is above the lowest possible cost by at most this share

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
