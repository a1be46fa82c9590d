"""How far first contents miss what was predicted: counts by bin, over a sliding window.

A ratio is what an attempt took over what was predicted. Bins are logarithmic. The window has slices
of five seconds, of which the latest six count. Where few requests come, a slice waits for samples,
for a minute at most. The counts of the whole window are kept up to date: a sample costs one
addition, and the end of a slice one subtraction for each of its bins.

Must never: grow with the number of samples, or look at a clock.
"""

from __future__ import annotations

from math import ceil, log
from typing import Final

from policies.hedging.curve import Curve

SLICES: Final = 6
SLICE_S: Final = 5.0
SLICE_LONGEST_S: Final = 60.0  # a slice that nobody fills
SLICE_SAMPLES: Final = 16  # a slice with fewer goes on
# A bin's upper end over its lower one. The curve is drawn through the upper ends: an attempt is not
# late because it shares a bin with quicker ones. The curve is off by 4 % at most.
GROWTH: Final = 1.04
LEAST: Final = 0.01  # what took a smaller share of the prediction counts as this
MOST: Final = 10_000.0  # a larger ratio counts as this
_PER_LOG: Final = 1.0 / log(GROWTH)
_LOWEST: Final = ceil(log(LEAST) * _PER_LOG)
BINS: Final = ceil(log(MOST) * _PER_LOG) - _LOWEST + 1
UPPER: Final = [GROWTH ** (_LOWEST + bin) for bin in range(BINS)]


def bin_of(ratio: float) -> int:
    """0 up to BINS - 1. Any ratio has one, NaN and infinity too."""
    if not ratio > LEAST:
        return 0
    return ceil(log(min(ratio, MOST)) * _PER_LOG) - _LOWEST


class Ratios:
    """The ratios of one model. Times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self.shown = 0  # whole samples in the window
        self._began = [now]  # of each slice, the latest last
        # Of each slice: how many in which bin. Attempts that were cut short are in bin BINS + n.
        self._slices: list[dict[int, int]] = [{}]
        self._counts = [0] * (2 * BINS)  # of all slices
        self._latest = 0  # whole samples in the latest slice

    @property
    def since(self) -> float:
        """When the window begins."""
        return self._began[0]

    def add(self, ratio: float) -> None:
        """A first content came."""
        self._add(bin_of(ratio))
        self.shown += 1
        self._latest += 1

    def add_cut(self, ratio: float) -> None:
        """An attempt ended that had waited so long and shown nothing."""
        self._add(BINS + bin_of(ratio))

    def _add(self, bin: int) -> None:
        latest = self._slices[-1]
        latest[bin] = latest.get(bin, 0) + 1
        self._counts[bin] += 1

    def slide(self, now: float) -> None:
        """Begin another slice if it is time, and forget the oldest then."""
        age_s = now - self._began[-1]
        if age_s >= SLICE_LONGEST_S or (age_s >= SLICE_S and self._latest >= SLICE_SAMPLES):
            self._began.append(now)
            self._slices.append({})
            self._latest = 0
            if len(self._began) > SLICES:
                del self._began[0]
                counts = self._counts
                for bin, count in self._slices.pop(0).items():
                    counts[bin] -= count
                    if bin < BINS:
                        self.shown -= count

    def curve(self, prior: list[float], weight: float) -> Curve:
        """What was seen, and as many samples more as `weight` says of what `prior` says: the share
        of first contents in each bin."""
        counts = self._counts
        times: list[float] = []
        shown: list[float] = []
        cut: list[float] = []
        for bin in range(BINS):
            ended = float(counts[bin])
            if weight > 0.0:
                ended += weight * prior[bin]
            left = counts[BINS + bin]
            if ended > 0.0 or left:
                times.append(UPPER[bin])
                shown.append(ended)
                cut.append(float(left))
        return Curve(times, shown, cut)
