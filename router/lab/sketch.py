"""Computes quantiles of a stream of values in bounded memory, with logarithmic buckets (DDSketch).

Bucket i counts the values in (g^(i-1), g^i] with g = (1+a)/(1-a). The value 2*g^i/(g+1) differs
from each value in the bucket by at most the relative error `a`. So every returned quantile has at
most this error. Source: Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile sketch
with relative-error guarantees", PVLDB 12(12), 2019. Two sketches of the same accuracy can be
merged. The result is the sketch of both streams.

If there are more buckets than allowed, the lowest ones are merged. High quantiles keep their
accuracy; low quantiles are then too high. 2,048 buckets with an error of 1 % cover more than
seventeen powers of ten, so for durations no buckets are ever merged.

Must never: grow with the number of values, or read a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf, log, log1p

from mypy_extensions import mypyc_attr

ACCURACY = 0.01
BUCKETS_MAX = 2048
_LEAST = 1e-9  # Values up to this limit count as 0 (a nanosecond, if the values are seconds).


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Sketch:
    """Quantiles, count and mean of values >= 0. A negative value or NaN counts as 0."""

    __slots__ = ("_counts", "_floor", "_per_log", "accuracy", "buckets_max", "total", "zeros")

    def __init__(self, accuracy: float = ACCURACY, buckets_max: int = BUCKETS_MAX) -> None:
        """`accuracy` is the largest relative error. Raises ValueError if it is not in (0, 1)."""
        if not 0.0 < accuracy < 1.0:
            raise ValueError("accuracy must be between 0 and 1")
        if buckets_max < 1:
            raise ValueError("buckets_max must be at least 1")
        self.accuracy = accuracy
        self.buckets_max = buckets_max
        self.zeros = 0
        self.total = 0.0  # The sum of all values.
        self._counts: dict[int, int] = {}
        self._per_log = 1.0 / (log1p(accuracy) - log1p(-accuracy))
        # The bucket into which lower buckets were merged; None: no bucket was merged.
        self._floor: int | None = None

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
        """Add all values of another sketch. Raises ValueError if the accuracies differ."""
        if other.accuracy != self.accuracy:
            raise ValueError(f"cannot merge {other.accuracy:g} into {self.accuracy:g}")
        self.zeros += other.zeros
        self.total += other.total
        counts = self._counts
        # `sorted` makes a copy of the buckets, because a sketch may be merged with itself. The
        # highest bucket is added first, so that low buckets are not created only to be merged.
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
        """The mean of all values; `None` if no value was counted."""
        count = self.count
        return self.total / count if count else None

    def quantile(self, q: float, *, above: int = 0) -> float | None:
        """Return the smallest value that a fraction `q` (0 to 1) of all values does not exceed.

        `above` is a number of further values that are larger than all counted values, such as the
        times of requests that never got a first token. Returns infinity if the quantile is one of
        these further values, and `None` if there are no values.
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
        """Yield pairs in ascending order: a value, and the number of counted values up to it."""
        seen = self.zeros
        if seen:
            yield 0.0, seen
        growth = (1.0 + self.accuracy) / (1.0 - self.accuracy)
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            yield 2.0 * growth**bucket / (growth + 1.0), seen

    def __len__(self) -> int:
        """The number of used buckets, without the bucket for the value 0."""
        return len(self._counts)

    def _add_to(self, bucket: int, count: int) -> None:
        """Add to the count of a bucket that does not exist yet."""
        counts = self._counts
        if self._floor is not None and bucket < self._floor:
            bucket = self._floor
        counts[bucket] = counts.get(bucket, 0) + count
        if len(counts) > self.buckets_max:
            lowest, floor = sorted(counts)[:2]
            counts[floor] += counts.pop(lowest)
            self._floor = floor
