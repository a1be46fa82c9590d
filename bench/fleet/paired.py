"""Compares routers under one workload by their figures in the same rounds. Pure.

Must never compare figures of different rounds, because the requests differ from round to round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean

from bench.findings import intervals
from bench.findings.intervals import Interval
from bench.fleet.run import Row
from bench.fleet.statistics import Summary

Figure = Callable[[Summary], float | None]


class Paired:
    """The results of one workload, by router (or policy) and round."""

    def __init__(self, rows: Iterable[Row], workload: str) -> None:
        self._found: dict[str, dict[int, Summary]] = {}
        for row in rows:
            if row.workload == workload and row.summary is not None:
                self._found.setdefault(row.name, {})[row.round] = row.summary

    @property
    def names(self) -> list[str]:
        """The measured contestants, in the order in which they were first played."""
        return list(self._found)

    def rounds(self, name: str) -> set[int]:
        """The numbers of the rounds in which the router `name` was measured."""
        return set(self._found.get(name, ()))

    def mean(self, name: str, figure: Figure) -> float | None:
        """The mean of a figure over a router's rounds; `None` if it is missing in a round."""
        values = [figure(one) for one in self._found[name].values()]
        known = [value for value in values if value is not None]
        return fmean(known) if len(known) == len(values) else None

    def pairs(self, ours: str, theirs: str, figure: Figure) -> list[tuple[float, float]] | None:
        """Return the figure of both contestants in each round in which both were measured.

        `None` if there is no such round, or if a figure of a round is missing or not above 0.
        """
        found = []
        for number in sorted(self.rounds(ours) & self.rounds(theirs)):
            mine, other = (figure(self._found[name][number]) for name in (ours, theirs))
            if not mine or not other:
                return None
            found.append((mine, other))
        return found or None

    def ratio(self, ours: str, theirs: str, figure: Figure) -> Interval | None:
        """The mean of `ours` divided by the mean of `theirs`; `None` if `pairs` returns `None`."""
        pairs = self.pairs(ours, theirs, figure)
        return intervals.ratio(*zip(*pairs, strict=True)) if pairs else None

    def noise(self, first: str, second: str, figure: Figure) -> float | None:
        """Relative difference between the two runs of the same router, named `first` and `second`.

        `None` if fewer than `PAIRS_MIN` rounds have both runs.
        """
        pairs = self.pairs(first, second, figure)
        if pairs is None or len(pairs) < intervals.PAIRS_MIN:
            return None
        return intervals.noise(*zip(*pairs, strict=True))
