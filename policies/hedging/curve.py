"""The survival curve of the time to first token: the share of attempts still waiting at a time.

Times are multiples of the predicted time, so that long and short prompts share one curve. When a
second copy answers first, the other attempt is cancelled ("cut"). Then its time to first token is
unknown, but it is longer than the attempt has waited. If cut attempts were left out, slow attempts
would be missing. If their waits counted as answers, these attempts would look quick. Here each cut
attempt counts as waiting until its cut and is left out afterwards (Kaplan and Meier, "Nonparametric
Estimation from Incomplete Observations", JASA 53, 1958). This is unbiased if the time of the cut
does not depend on the attempt's own time. The time of the cut depends on the other copy's time
only.

If the last samples were all cut, the curve does not reach 0. The remaining attempts, and attempts
that wait longer than any sample, are assumed to need as long again as they have waited (a Pareto
tail with exponent 2, whose mean remaining life at t is t).

Must never: change after it was made, or read a clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from math import inf, sqrt
from typing import Final

_CLOSE: Final = 1e-9  # shares that differ by less than this count as equal


class Curve:
    """The share of attempts that show no content within a time, with its integral and quantiles."""

    __slots__ = ("_alive", "_area", "_areas", "_end", "_values", "last", "mean", "shown")

    def __init__(self, times: list[float], shown: list[float], cut: list[float]) -> None:
        """`times` is sorted. `shown` and `cut` have one number for each time: how many attempts
        showed content, and how many were cancelled, at that time.

        The numbers in `shown` and `cut` may be fractions.
        """
        # By index of `times`: the number of attempts that waited until that time. The counts are
        # summed from the end. So a rounded sum is never below one of its parts, although counts of
        # 1e-6 occur beside counts of thousands.
        waits = [0.0] * len(times)
        waiting = 0.0
        whole = 0.0
        for index in range(len(times) - 1, -1, -1):
            whole += shown[index]
            waiting += shown[index] + cut[index]
            waits[index] = waiting
        self.shown = whole  # number of samples that showed content
        self.last = times[-1] if times else 0.0  # longest wait of all samples, including cut ones
        values: list[float] = []  # times at which an attempt showed content, ascending
        shares: list[float] = []  # the share of attempts that still waits after each of `values`
        areas: list[float] = []  # the integral of the share from 0 up to each of `values`
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
        # The share of attempts that still waits at `last`: 0 unless the last samples were cut.
        self._end = 0.0 if share < _CLOSE else share
        # The mean time is the integral of `survival` from 0 to infinity.
        self._area = area + share * (self.last - at)  # the integral of `survival` up to `last`
        self.mean = self._area + self._end * self.last

    def survival(self, time: float) -> float:
        """Return the share of attempts that take longer than `time`."""
        if time > self.last:
            return self._end * (self.last / time) ** 2
        index = self._until(time)
        return self._alive[index - 1] if index else 1.0

    def area(self, time: float) -> float:
        """Return the integral of `survival` from 0 to `time`. It is the mean of min(t, `time`),
        where t is the time of an attempt."""
        if time > self.last:
            return self._area + self._end * self.last * (1.0 - self.last / time)
        index = self._until(time)
        if not index:
            return time
        return self._areas[index - 1] + self._alive[index - 1] * (time - self._values[index - 1])

    def remaining(self, time: float) -> float:
        """Return the mean remaining time of the attempts that have waited for `time`."""
        share = self.survival(time)
        if time >= self.last or share <= _CLOSE:
            return time
        return (self.mean - self.area(time)) / share

    def quantile(self, q: float) -> float:
        """Return the least time within which a share `q` of attempts shows content; infinity if
        there is no such time."""
        left = 1.0 - q
        low, high = 0, len(self._alive)
        while low < high:  # binary search for the first share that is low enough; shares never rise
            middle = (low + high) // 2
            if self._alive[middle] <= left + _CLOSE:
                high = middle
            else:
                low = middle + 1
        if low < len(self._values):
            return self._values[low]
        return self.last * sqrt(self._end / left) if left > 0.0 else inf

    def times(self, since: float) -> list[float]:
        """Return `since` and all later times at which an attempt showed content, in ascending
        order."""
        return [since, *self._values[self._until(since) :]]

    def _until(self, time: float) -> int:
        """Return the number of values up to `time`. The tolerance `_CLOSE` allows for the rounding
        of a `time` that was computed from one of the values.
        """
        return bisect_right(self._values, time * (1.0 + _CLOSE))


def curve_of(
    shown: Iterable[tuple[float, float]], cut: Iterable[tuple[float, float]] = ()
) -> Curve:
    """Return the curve of (time, count) pairs in any order. `shown`: attempts that showed content;
    `cut`: attempts that were cancelled before they showed content.
    """
    whole: dict[float, float] = {}
    for time, count in shown:
        whole[time] = whole.get(time, 0.0) + count
    short: dict[float, float] = {}
    for time, count in cut:
        short[time] = short.get(time, 0.0) + count
    times = sorted(whole.keys() | short.keys())
    return Curve(times, [whole.get(t, 0.0) for t in times], [short.get(t, 0.0) for t in times])
