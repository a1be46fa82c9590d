"""A time series of a run: a bounded number of equal time intervals, the bins, over a run of unknown
length.

Bins start narrow. If a time is after the last possible bin, pairs of neighbouring bins are merged,
so that each bin becomes twice as wide. Must never: hold more than `bins_max` bins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mypy_extensions import mypyc_attr

from router.lab.sketch import Sketch

BINS_MAX = 128
_FIRST_WIDTH_S = 1 / 16


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Bin:
    """The requests that arrived in one time interval, and the load of the replicas in this
    interval.
    """

    __slots__ = ("failed", "load", "load_max", "load_min", "requests", "samples", "ttft")

    def __init__(self) -> None:
        self.requests = 0  # requests that arrived in the interval; each is counted when it ends
        self.failed = 0
        self.ttft = Sketch()  # TTFT of answered requests that arrived in the interval
        self.samples = 0  # number of samples of the replicas' load
        # For each sample, the mean, the smallest and the largest load of the replicas are added
        # here.
        self.load = 0.0
        self.load_min = 0.0
        self.load_max = 0.0

    def merge(self, other: Bin) -> None:
        self.requests += other.requests
        self.failed += other.failed
        self.ttft.merge(other.ttft)
        self.samples += other.samples
        self.load += other.load
        self.load_min += other.load_min
        self.load_max += other.load_max


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Series:
    """A sequence of bins over the time since the traffic began, in seconds."""

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
        """Return the bin of a time >= 0.

        Do not keep the bin: the next call may merge it with another bin.
        """
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
        """Add a sample of the load of each replica; `loads` must not be empty."""
        found = self.at(now)
        found.samples += 1
        found.load += sum(loads) / len(loads)
        found.load_min += min(loads)
        found.load_max += max(loads)

    def coarse(self, bins_max: int) -> Series:
        """Return a copy with at most `bins_max` bins."""
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
