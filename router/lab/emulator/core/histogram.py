"""A histogram with integer counts. An observation costs one binary search."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """A histogram whose buckets have the ascending upper `bounds`.

    A value that equals a bound is in the bucket of this bound, as in Prometheus.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[str, int]]:
        """Pairs (`le` label, number of observations up to that bound); the last label is `+Inf`."""
        total = 0
        rows = []
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            total += count
            rows.append(("+Inf" if bound is None else str(bound), total))
        return rows
