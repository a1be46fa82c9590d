"""The result of a plan: the advised numbers of replicas, with reasons and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from router.lab.plan.decision.problem import PoolId
from router.lab.plan.forecasts.forecast import Forecast
from router.lab.plan.observed import Place


@dataclass(frozen=True, slots=True)
class PoolAdvice:
    """The advice for the replicas of one type that serve a model in a region."""

    id: PoolId
    now: int | None  # number of running replicas; None: unknown
    planned: int
    reactive: int | None  # number by the reactive rule; None: the present number is unknown
    cost: float  # cost of one replica per hour
    start: float  # cost of one start

    @property
    def matters(self) -> bool:
        """Whether there is a replica now, in the plan, or by the reactive rule."""
        return bool(self.now or self.planned or self.reactive)


@dataclass(frozen=True, slots=True)
class PlaceAdvice:
    """The advice for a model in a region."""

    place: Place
    forecast: Forecast
    prompt_share: float  # prompt tokens as a share of the forecast tokens
    binding: str  # the constraint that decides the number of replicas
    short: float  # share of the demand that is not served within the limits, at the worst time
    shifted: Mapping[str, float]  # share of the demand that is served in another region, by region
    # Tokens/s that the planned replicas serve at the utilisation limit, with this share of prompt
    # tokens.
    capacity: float
    # Highest tokens/s that the plan must serve: the forecast demand and the waiting requests.
    peak: float
    # True: no replica was full when its throughput was measured. Then the capacity is a lower
    # bound, and no more replicas are advised than run now.
    is_at_least: bool
    # Utilisation of the present replicas in the last window; None: unknown.
    utilisation: float | None
    # The share of the slots that class batch may use until the next plan; None: the forecast is not
    # trusted.
    batch_share: float | None


@dataclass(frozen=True, slots=True)
class Advice:
    """The whole plan: the advice for all pools and all models and regions."""

    pools: Sequence[PoolAdvice]
    places: Sequence[PlaceAdvice]
    period_s: float
    window_s: float
    now_s: float  # end of the last window, on the clock of the source
    gap: float  # the cost is above the lowest possible cost by at most this share
    notes: Sequence[str]

    def cost(self, of: str) -> float | None:
        """Return the cost per hour of the replicas; None: their number is unknown.

        `of`: "planned", "reactive" or "now".
        """
        found = 0.0
        for pool in self.pools:
            count: int | None = getattr(pool, of)
            if count is None:
                return None
            found += count * pool.cost
        return found

    def start_cost(self, of: str) -> float | None:
        """Return the cost of starting the missing replicas; None: their number is unknown.

        `of`: "planned" or "reactive".
        """
        found = 0.0
        for pool in self.pools:
            count: int | None = getattr(pool, of)
            if count is None or pool.now is None:
                return None
            found += max(0, count - pool.now) * pool.start
        return found
