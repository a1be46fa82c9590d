"""What a plan advises, with its reasons and costs. Plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from router.plan.decision.problem import PoolId
from router.plan.forecasts.forecast import Forecast
from router.plan.observed import Place


@dataclass(frozen=True, slots=True)
class PoolAdvice:
    """The advice for the replicas of one type that serve a model in a region."""

    id: PoolId
    now: int | None  # None: unknown
    planned: int
    reactive: int | None  # what the reactive rule asks for; None: the present number is unknown
    cost: float  # of one replica, per hour
    start: float  # of one start

    @property
    def matters(self) -> bool:
        """Whether there is a replica, now or in a plan."""
        return bool(self.now or self.planned or self.reactive)


@dataclass(frozen=True, slots=True)
class PlaceAdvice:
    """The advice for a model in a region."""

    place: Place
    forecast: Forecast
    prompt_share: float  # of the forecast tokens
    binding: str  # the constraint that decides the number of replicas
    short: float  # the largest share of the demand that is not served within the limits
    shifted: Mapping[str, float]  # the share of the demand that is served in another region
    capacity: float  # tokens/s of the planned replicas at the utilisation limit, with this mix
    peak: float  # tokens/s of the demand that was planned for
    utilisation: float | None  # of the present replicas in the last window; None: unknown


@dataclass(frozen=True, slots=True)
class Advice:
    """The whole plan."""

    pools: Sequence[PoolAdvice]
    places: Sequence[PlaceAdvice]
    period_s: float
    window_s: float
    now_s: float  # end of the last window, on the clock of the source
    gap: float  # relative distance of the cost from the best possible cost, at most
    notes: Sequence[str]

    def cost(self, of: str) -> float | None:
        """Cost per hour of the `planned`, `reactive` or `now` replicas; None: unknown."""
        found = 0.0
        for pool in self.pools:
            count: int | None = getattr(pool, of)
            if count is None:
                return None
            found += count * pool.cost
        return found

    def start_cost(self, of: str) -> float | None:
        """Cost of the starts that lead to the `planned` or `reactive` replicas; None: unknown."""
        found = 0.0
        for pool in self.pools:
            count: int | None = getattr(pool, of)
            if count is None or pool.now is None:
                return None
            found += max(0, count - pool.now) * pool.start
        return found
