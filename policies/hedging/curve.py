"""How long first tokens take, as a survival curve: the share that is still waited for at a time.

Times are in multiples of what was predicted, so that long prompts and short ones share one curve.
An attempt whose race another one won was cut short: how long it would have taken is not known, but
it is at least what it had waited. Leaving such samples out would make the slow ones vanish, and
counting their waits as answers would make them quick. Here each counts as waiting up to its cut and
as nothing afterwards (Kaplan and Meier, "Nonparametric Estimation from Incomplete Observations",
JASA 53, 1958), which is unbiased as long as the cut says nothing about the rest: the other copy's
time does not.

Where the last samples were all cut, the curve does not come down to 0. What remains then, and
whoever waits for longer than anybody was seen to, is taken to need as long again as it has waited
(a Pareto tail with exponent 2, whose mean remaining life at t is t).

Must never: change after it was made, or look at a clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from math import inf, sqrt
from typing import Final

_CLOSE: Final = 1e-9  # shares that differ by less are the same


class Curve:
    """The share of attempts that show nothing within a time, and what follows from it."""

    __slots__ = ("_alive", "_area", "_areas", "_end", "_values", "last", "mean", "shown")

    def __init__(self, times: list[float], shown: list[float], cut: list[float]) -> None:
        """`times` ascend; at each of them so many attempts showed content, and so many were cut
        short. Counts may be fractions."""
        # How many wait until each time. Summed from the end, so that a rounded sum is never below
        # one of its parts: shares of a millionth stand beside thousands of samples.
        waits = [0.0] * len(times)
        waiting = 0.0
        whole = 0.0
        for index in range(len(times) - 1, -1, -1):
            whole += shown[index]
            waiting += shown[index] + cut[index]
            waits[index] = waiting
        self.shown = whole  # samples that are whole
        self.last = times[-1] if times else 0.0  # the longest wait of all, whole or cut
        values: list[float] = []  # times at which somebody showed content, ascending
        shares: list[float] = []  # the share that still waits after each of them
        areas: list[float] = []  # the integral of the share from 0 up to each of them
        share, area, at = 1.0, 0.0, 0.0
        for index in range(len(times)):
            ended = shown[index]
            if ended > 0.0:
                value = times[index]
                area += share * (value - at)
                share *= 1.0 - ended / waits[index]
                at = value
                values.append(value)
                shares.append(share)
                areas.append(area)
        self._values = values
        self._alive = shares
        self._areas = areas
        # What remains at `last`: 0 unless the last ones were cut.
        self._end = 0.0 if share < _CLOSE else share
        # The mean of all: the integral of `survival` without end.
        self._area = area + share * (self.last - at)  # up to `last`
        self.mean = self._area + self._end * self.last

    def survival(self, time: float) -> float:
        """The share that takes longer than `time`."""
        if time > self.last:
            return self._end * (self.last / time) ** 2
        index = self._until(time)
        return self._alive[index - 1] if index else 1.0

    def area(self, time: float) -> float:
        """The integral of `survival` from 0 to `time`: the mean of min(what it takes, `time`)."""
        if time > self.last:
            return self._area + self._end * self.last * (1.0 - self.last / time)
        index = self._until(time)
        if not index:
            return time
        return self._areas[index - 1] + self._alive[index - 1] * (time - self._values[index - 1])

    def remaining(self, time: float) -> float:
        """How much longer it takes in the mean, of those that have waited for `time`."""
        share = self.survival(time)
        if time >= self.last or share <= _CLOSE:
            return time
        return (self.mean - self.area(time)) / share

    def quantile(self, q: float) -> float:
        """The least time that a share `q` does not exceed; infinity where there is none."""
        left = 1.0 - q
        low, high = 0, len(self._alive)
        while low < high:  # the first one that is low enough; the shares only fall
            middle = (low + high) // 2
            if self._alive[middle] <= left + _CLOSE:
                high = middle
            else:
                low = middle + 1
        if low < len(self._values):
            return self._values[low]
        return self.last * sqrt(self._end / left) if left > 0.0 else inf

    def times(self, since: float) -> list[float]:
        """`since`, and all later times at which somebody showed content, ascending."""
        return [since, *self._values[self._until(since) :]]

    def _until(self, time: float) -> int:
        """How many of the values are not above `time`. A moment that was computed from one of them
        is not below it: rounding is no wait."""
        return bisect_right(self._values, time * (1.0 + _CLOSE))


def curve_of(
    shown: Iterable[tuple[float, float]], cut: Iterable[tuple[float, float]] = ()
) -> Curve:
    """The curve of (time, how many) pairs in any order: attempts that showed content, and attempts
    that were cut short before."""
    whole: dict[float, float] = {}
    for time, count in shown:
        whole[time] = whole.get(time, 0.0) + count
    short: dict[float, float] = {}
    for time, count in cut:
        short[time] = short.get(time, 0.0) + count
    times = sorted(whole.keys() | short.keys())
    return Curve(times, [whole.get(t, 0.0) for t in times], [short.get(t, 0.0) for t in times])
