"""Counts, for each class, how many first tokens arrived within the interval of their estimate.

The streams come from a simulation or from an access log. Must never simulate or judge a goal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from router.core.text.table import Column
from router.core.urgency import CLASSES
from router.lab.simulator.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Stream:
    """The time to first token of one stream, and its estimate with an interval, in seconds."""

    ttft_s: float
    estimate_s: float  # below 0 if there is no estimate
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True)
class Coverage:
    """How good the estimates of one class in one scenario are."""

    scenario: str
    name: str  # name of the class
    streams: int  # number of streams with a first token
    estimated: int  # how many of them have an estimate
    below: int  # number of first tokens before the interval
    above: int  # number of first tokens after the interval
    width_s: float | None  # median width of the intervals; None without estimates
    # Distance from the 5th to the 95th percentile of all TTFTs; None without streams.
    range_s: float | None
    error: float | None  # median of |estimate / TTFT - 1|, as a share

    @property
    def covered(self) -> float | None:
        """The share of first tokens that arrived within their intervals."""
        if not self.estimated:
            return None
        return 1.0 - (self.below + self.above) / self.estimated

    @property
    def relative_width(self) -> float | None:
        """The median width of the intervals, divided by the range of the TTFTs."""
        if self.width_s is None or not self.range_s:
            return None
        return self.width_s / self.range_s

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "covered": self.covered, "relative_width": self.relative_width}


class Recorded:
    """Records streams that arrive in the judged time, from `warm_s` to `until_s`."""

    def __init__(self, scenario: str, warm_s: float, until_s: float) -> None:
        self._scenario = scenario
        self._warm_s = warm_s
        self._until_s = until_s
        self._streams: dict[str, list[Stream]] = {name: [] for name in CLASSES}

    def ended(self, outcome: Outcome) -> None:
        ttft_s = outcome.ttft_s
        if ttft_s is not None and self._warm_s <= outcome.arrival.at <= self._until_s:
            self._streams[outcome.arrival.priority].append(
                Stream(ttft_s, outcome.estimate_s, outcome.estimate_low_s, outcome.estimate_high_s)
            )

    def classes(self) -> list[Coverage]:
        return [coverage(self._scenario, name, found) for name, found in self._streams.items()]


def coverage(scenario: str, name: str, streams: Sequence[Stream]) -> Coverage:
    """Summarise the streams of one class. `scenario` and `name` label the row."""
    ttfts = sorted(one.ttft_s for one in streams)
    given = [one for one in streams if one.estimate_s >= 0.0]
    widths = [one.high_s - one.low_s for one in given]
    errors = [abs(one.estimate_s / max(one.ttft_s, 1e-9) - 1.0) for one in given]
    return Coverage(
        scenario,
        name,
        len(ttfts),
        len(given),
        sum(one.ttft_s < one.low_s for one in given),
        sum(one.ttft_s > one.high_s for one in given),
        median(widths) if widths else None,
        _quantile(ttfts, 0.95) - _quantile(ttfts, 0.05) if ttfts else None,
        median(errors) if errors else None,
    )


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def columns() -> list[Column[Coverage]]:
    """The columns of a table with one row per scenario and class."""
    return [
        Column("scenario", "scenario", text=lambda row: row.scenario),
        Column("class", "class", text=lambda row: row.name),
        Column("streams", "streams", value=lambda row: row.streams),
        Column("given", "estimated", "%", lambda row: _percent(_share(row.estimated, row.streams))),
        Column("covered", "coverage", "%", lambda row: _percent(row.covered)),
        Column("below", "below", "%", lambda row: _percent(_share(row.below, row.estimated))),
        Column("above", "above", "%", lambda row: _percent(_share(row.above, row.estimated))),
        Column("error", "median error", "%", lambda row: _percent(row.error)),
        Column("width", "median width", "s", lambda row: row.width_s),
        Column("range", "range", "s", lambda row: row.range_s),
        Column("relative", "width / range", "", lambda row: row.relative_width),
    ]


def mean_columns() -> list[Column[Sequence[Coverage]]]:
    """The columns of a table with one row per scenario and class: means over its runs.

    A run without a figure is left out of the mean. Two more columns have the lowest and the highest
    coverage of a run.
    """
    found: list[Column[Sequence[Coverage]]] = []
    for column in columns():
        if column.text is not None:
            found.append(Column(column.key, column.title, column.unit, text=_of_first(column.text)))
            continue
        assert column.value is not None
        found.append(Column(column.key, column.title, column.unit, _over_runs(column.value, fmean)))
        if column.key == "covered":
            found += [
                Column("lowest", "lowest", "%", _over_runs(column.value, min)),
                Column("highest", "highest", "%", _over_runs(column.value, max)),
            ]
    return found


def _of_first(text: Callable[[Coverage], str]) -> Callable[[Sequence[Coverage]], str]:
    return lambda runs: text(runs[0])


def _over_runs(
    value: Callable[[Coverage], float | None], of: Callable[[list[float]], float]
) -> Callable[[Sequence[Coverage]], float | None]:
    def found(runs: Sequence[Coverage]) -> float | None:
        values = [figure for run in runs if (figure := value(run)) is not None]
        return of(values) if values else None

    return found


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share
