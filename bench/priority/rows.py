"""The results of one order, simulated or over HTTP.

A request without a whole answer counts as slower than all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isfinite

from bench.fleet.statistics import quantile, quantile_bounds


@dataclass(frozen=True, slots=True)
class Times:
    """Times to first token of one class, in seconds.

    A time is None if there were no requests, or if so many failed that it is not finite.
    """

    requests: int
    p50: float | None
    p99: float | None
    p99_bounds: tuple[float, float] | None  # 95 % confidence interval of the p99


def times(ttfts: Iterable[float]) -> Times:
    """Compute the quantiles. A request without a whole answer is infinite in `ttfts`."""
    ranked = sorted(ttfts)
    bounds = quantile_bounds(ranked, 0.99)
    return Times(
        len(ranked),
        _finite(quantile(ranked, 0.5)),
        _finite(quantile(ranked, 0.99)),
        bounds if bounds is not None and isfinite(bounds[1]) else None,
    )


@dataclass(slots=True)
class Row:
    order: str
    classes: dict[str, Times]
    tokens_s: float  # output tokens that arrived in the measured time
    hit_rate: float | None  # share of the prompt tokens that engines found in their prefix caches
    errors: int = 0
    router_cpu: float | None = None  # CPUs that the router used; None if not measured
    problems: list[str] = field(default_factory=list)

    def of(self, name: str) -> Times:
        return self.classes.get(name) or Times(0, None, None, None)


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
