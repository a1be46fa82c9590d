"""Quantiles of a stream in bounded memory: DDSketch, counts in logarithmic buckets.

Bucket i holds the values in (g^(i-1), g^i] with g = (1+a)/(1-a), so that 2*g^i/(g+1) is within a
share `a` of each of them: every returned quantile is within that share of the true one. Source:
Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error
guarantees", PVLDB 12(12), 2019. Two sketches of the same accuracy merge into the sketch of both
streams.

When there are more buckets than allowed, the lowest are merged: high quantiles keep their accuracy,
low ones are then too high. 2,048 buckets at 1 % cover over seventeen powers of ten, so that this
does not happen for times.

Must never: grow with the number of values, or read a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf, log, log1p

from mypy_extensions import mypyc_attr

ACCURACY = 0.01
BUCKETS_MAX = 2048
_LEAST = 1e-9  # values up to here (a nanosecond, where they are seconds) count as 0


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Sketch:
    """Quantiles, count and mean of values >= 0. A negative value or NaN counts as 0."""

    __slots__ = ("_counts", "_floor", "_per_log", "accuracy", "buckets_max", "total", "zeros")

    def __init__(self, accuracy: float = ACCURACY, buckets_max: int = BUCKETS_MAX) -> None:
        """`accuracy`: the largest relative error, 0 to 1. Raises ValueError."""
        if not 0.0 < accuracy < 1.0:
            raise ValueError("accuracy must be between 0 and 1")
        if buckets_max < 1:
            raise ValueError("buckets_max must be at least 1")
        self.accuracy = accuracy
        self.buckets_max = buckets_max
        self.zeros = 0
        self.total = 0.0  # the sum of all values
        self._counts: dict[int, int] = {}
        self._per_log = 1.0 / (log1p(accuracy) - log1p(-accuracy))
        self._floor: int | None = None  # the bucket that lower ones fell into; None: none did

    def add(self, value: float) -> None:
        """Count one value. Raises OverflowError for infinity."""
        if value > _LEAST:
            bucket = ceil(log(value) * self._per_log)
            self.total += value
            counts = self._counts
            if bucket in counts:
                counts[bucket] += 1
            else:
                self._add_to(bucket, 1)
        else:
            self.zeros += 1

    def merge(self, other: Sketch) -> None:
        """Count all that `other` counted. Raises ValueError if their accuracies differ."""
        if other.accuracy != self.accuracy:
            raise ValueError(f"cannot merge {other.accuracy:g} into {self.accuracy:g}")
        self.zeros += other.zeros
        self.total += other.total
        counts = self._counts
        # A copy, highest first: a sketch may be merged with itself, and a bucket that is to fall
        # together with others need not be made first.
        for bucket, count in sorted(other._counts.items(), reverse=True):
            if bucket in counts:
                counts[bucket] += count
            else:
                self._add_to(bucket, count)

    @property
    def count(self) -> int:
        return self.zeros + sum(self._counts.values())

    @property
    def mean(self) -> float | None:
        """None of nothing."""
        count = self.count
        return self.total / count if count else None

    def quantile(self, q: float, *, above: int = 0) -> float | None:
        """The smallest value that at least a share `q` does not exceed; None of nothing.

        `above` more values are taken to be larger than all that were counted, such as requests
        that never showed a first token; infinity if the quantile is among them.
        """
        count = self.count
        if not count + above:
            return None
        rank = max(1, ceil(q * (count + above)))
        if rank > count:
            return inf
        for value, seen in self.cumulative():
            if seen >= rank:
                return value
        raise AssertionError("the last bucket is at the count")

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """(value, how many are about it or less), ascending: the distribution itself."""
        seen = self.zeros
        if seen:
            yield 0.0, seen
        growth = (1.0 + self.accuracy) / (1.0 - self.accuracy)
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            yield 2.0 * growth**bucket / (growth + 1.0), seen

    def __len__(self) -> int:
        """Buckets in use, the one of zeros aside."""
        return len(self._counts)

    def _add_to(self, bucket: int, count: int) -> None:
        """Count into a bucket that does not exist yet."""
        counts = self._counts
        if self._floor is not None and bucket < self._floor:
            bucket = self._floor
        counts[bucket] = counts.get(bucket, 0) + count
        if len(counts) > self.buckets_max:
            lowest, floor = sorted(counts)[:2]
            counts[floor] += counts.pop(lowest)
            self._floor = floor
