"""Counts requests and tokens in windows of equal length, by model and region.

Windows begin at multiples of their length, so that several logs have the same windows. The first
and the last window of a source are incomplete, and are left out if other windows remain. Must
never: hold a request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from router.lab.plan.observed import Place, Series

PLACES_MAX: Final = 1000  # maximum pairs of a model and a region; further models count as `OTHER`
OTHER: Final = "other"
WINDOWS_MAX: Final = 100_000  # maximum windows of one series: ten weeks, if a window is one minute


class Windows:
    """The sums of requests and tokens of each window. `width_s`: the length of a window."""

    def __init__(self, width_s: float) -> None:
        self.width_s = width_s
        self._counts: dict[Place, dict[int, list[float]]] = {}
        self._first = self._last = 0

    def place(self, model: str, region: str) -> Place:
        """Return the model and the region under which requests are counted.

        Beyond `PLACES_MAX`, the model is `OTHER`.
        """
        place = Place(model, region)
        if place in self._counts or len(self._counts) < PLACES_MAX:
            return place
        return Place(OTHER, region)

    def add(self, place: Place, at: float, requests: float, prompt: float, output: float) -> None:
        """Count requests at `at`, in seconds of the source's clock.

        Raises ValueError if the source is too long for windows of this length.
        """
        number = int(at // self.width_s)
        if not self._counts:
            self._first = self._last = number
        self._first, self._last = min(self._first, number), max(self._last, number)
        if self._last - self._first >= WINDOWS_MAX:
            raise ValueError(f"more than {WINDOWS_MAX:,} windows: choose a longer --window")
        counts = self._counts.setdefault(place, {})
        sums = counts.setdefault(number, [0.0, 0.0, 0.0])
        sums[0] += requests
        sums[1] += prompt
        sums[2] += output

    def bounds(self) -> tuple[int, int]:
        """Return the numbers of the first complete window, and of the window after the last one."""
        first, end = self._first, self._last + 1
        return (first + 1, end - 1) if end - first > 2 else (first, end)

    def series(self) -> dict[Place, Series]:
        """Return the complete windows by model and region; all series have the same length."""
        return self.series_of(*self.bounds())

    def series_of(self, first: int, end: int) -> dict[Place, Series]:
        """Return the windows from number `first` up to, but not including, number `end`."""
        return {place: _series(counts, range(first, end)) for place, counts in self._counts.items()}


def _series(counts: dict[int, list[float]], numbers: Iterable[int]) -> Series:
    rows = [counts.get(number, [0.0, 0.0, 0.0]) for number in numbers]
    return Series([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])
