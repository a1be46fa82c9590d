"""What happened when: a bounded number of equal bins over a run of unknown length.

Bins start narrow; whenever the run outgrows them, neighbours are merged and every bin is twice as
wide. Must never: hold more than `bins_max` bins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mypy_extensions import mypyc_attr

from router.core.sketch import Sketch

BINS_MAX = 128
_FIRST_WIDTH_S = 1 / 16


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Bin:
    """What began within one stretch of time, and how full replicas were in it."""

    __slots__ = ("emptiest", "failed", "fullest", "load", "requests", "samples", "ttft")

    def __init__(self) -> None:
        self.requests = 0  # arrived in it; they are counted when they end
        self.failed = 0
        self.ttft = Sketch()  # of those that arrived in it and were answered
        self.samples = 0  # of the replicas' load; the next three are sums over them
        self.load = 0.0  # mean over replicas
        self.emptiest = 0.0
        self.fullest = 0.0

    def merge(self, other: Bin) -> None:
        self.requests += other.requests
        self.failed += other.failed
        self.ttft.merge(other.ttft)
        self.samples += other.samples
        self.load += other.load
        self.emptiest += other.emptiest
        self.fullest += other.fullest


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Series:
    """Bins over the time since the traffic began, in seconds."""

    __slots__ = ("_bins", "bins_max", "width_s")

    def __init__(self, bins_max: int = BINS_MAX) -> None:
        self.bins_max = bins_max
        self.width_s = _FIRST_WIDTH_S
        self._bins: list[Bin] = []

    def __iter__(self) -> Iterator[Bin]:
        return iter(self._bins)

    def __len__(self) -> int:
        return len(self._bins)

    def at(self, time: float) -> Bin:
        """The bin of a time >= 0; it is good until the next call."""
        index = int(time / self.width_s)
        bins = self._bins
        if index >= len(bins):
            while index >= self.bins_max:
                self._widen()
                index = int(time / self.width_s)
            bins = self._bins
            bins.extend(Bin() for _ in range(index + 1 - len(bins)))
        return bins[index]

    def answered(self, arrived: float, ttft_s: float) -> None:
        found = self.at(arrived)
        found.requests += 1
        found.ttft.add(ttft_s)

    def not_answered(self, arrived: float) -> None:
        found = self.at(arrived)
        found.requests += 1
        found.failed += 1

    def sampled(self, now: float, loads: Sequence[float]) -> None:
        """How much each replica has at hand at this moment; not empty."""
        found = self.at(now)
        found.samples += 1
        found.load += sum(loads) / len(loads)
        found.emptiest += min(loads)
        found.fullest += max(loads)

    def coarse(self, bins_max: int) -> Series:
        """A copy of at most so many bins."""
        copy = Series(self.bins_max)
        copy.width_s = self.width_s
        for one in self._bins:
            copy._bins.append(Bin())
            copy._bins[-1].merge(one)
        while len(copy) > bins_max:
            copy._widen()
        return copy

    def _widen(self) -> None:
        for left, right in zip(self._bins[::2], self._bins[1::2], strict=False):
            left.merge(right)
        self._bins = self._bins[::2]
        self.width_s *= 2
