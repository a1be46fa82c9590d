"""Measures the error of predicted times to first content: a histogram over a sliding window.

A ratio is the time that an attempt took, divided by the predicted time. The bins of the histogram
are logarithmic. The window consists of the latest six slices of five seconds. A slice of time with
few samples is extended, to one minute at most. The counts of the whole window are kept up to date.
So a sample costs one addition, and the end of a slice one subtraction for each of its bins.

Must never: grow with the number of samples, or read a clock.
"""

from __future__ import annotations

from math import ceil, log
from typing import Final

from policies.hedging.curve import Curve

SLICES: Final = 6
SLICE_S: Final = 5.0
SLICE_LONGEST_S: Final = 60.0  # The longest duration in seconds of a slice with too few samples.
# Minimum number of samples in a slice; a slice with fewer samples is extended.
SLICE_SAMPLES: Final = 16
# A bin's upper end divided by its lower end. The curve uses the upper ends, so that an attempt does
# not count as late because of quicker attempts in its bin. The error of the curve is at most 4 %.
GROWTH: Final = 1.04
LEAST: Final = 0.01  # A smaller ratio counts as this ratio.
MOST: Final = 10_000.0  # A larger ratio counts as this ratio.
_PER_LOG: Final = 1.0 / log(GROWTH)
_LOWEST: Final = ceil(log(LEAST) * _PER_LOG)
BINS: Final = ceil(log(MOST) * _PER_LOG) - _LOWEST + 1
UPPER: Final = [GROWTH ** (_LOWEST + bin) for bin in range(BINS)]


def bin_of(ratio: float) -> int:
    """Return the bin of a ratio, a number from 0 to BINS - 1. NaN and infinity have a bin, too."""
    if not ratio > LEAST:
        return 0
    return ceil(log(min(ratio, MOST)) * _PER_LOG) - _LOWEST


class Ratios:
    """The ratios of one model. Times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self.shown = 0  # Number of samples in the window from attempts that showed content.
        self._began = [now]  # The beginning of each slice; the latest slice is last.
        # The counts of each slice: bin -> number of samples. Attempts that ended without content
        # count in bin BINS + n instead of bin n.
        self._slices: list[dict[int, int]] = [{}]
        self._counts = [0] * (2 * BINS)  # The counts of all slices together.
        self._latest = 0  # Number of samples in the latest slice from attempts that showed content.

    def add(self, ratio: float) -> None:
        """Add the ratio of an attempt that showed its first content."""
        self._add(bin_of(ratio))
        self.shown += 1
        self._latest += 1

    def add_cut(self, ratio: float) -> None:
        """Add an attempt that ended without content.

        `ratio`: the time that the attempt had waited, divided by the predicted time.
        """
        self._add(BINS + bin_of(ratio))

    def _add(self, bin: int) -> None:
        latest = self._slices[-1]
        latest[bin] = latest.get(bin, 0) + 1
        self._counts[bin] += 1

    def slide(self, now: float) -> None:
        """Begin another slice if the latest one has ended, and remove the oldest one."""
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
        """Return the distribution of the samples, combined with an assumed distribution.

        `prior`: the assumed share of first contents in each bin. `weight`: the number of samples
        that the prior counts for.
        """
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
