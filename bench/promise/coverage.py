"""Counts, for each class, how many first tokens arrived within the interval of their estimate.

The streams come from a simulation or from an access log. Must never simulate or judge a goal.

`judge`, `judge_runs`: judges the goals of the estimates: coverage and width of the worst class in
each scenario.

One run is judged by its figures, several runs by the interval of their mean (`findings.judged`). A
verdict's note names all classes that miss the goal or leave it open. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from typing import Any, Final

from bench.findings.judged import judged_distance, judged_mean
from bench.overhead.goals import Verdict
from router.core.conformal import COVERAGE
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


OFF: Final = 0.03  # maximum distance of the coverage from 90 %
WIDTH: Final = 0.5  # maximum median width, as a share of the range of the class's TTFTs
LEAST: Final = 1000  # the note names classes with fewer estimates
_COVERED: Final = f"{COVERAGE - OFF:.0%} to {COVERAGE + OFF:.0%}"
_NARROW: Final = f"≤ {WIDTH:g} of the range"

Classes = Sequence[Sequence[Coverage]]  # for each class of a scenario, its runs


def judge(rows: Sequence[Coverage]) -> list[Verdict]:
    """Judge one run per class and scenario by its figures alone."""
    return _by_scenario([[row] for row in rows], _covered, _relative)


def judge_runs(rows: Classes) -> list[Verdict]:
    """Judge the runs of each class and scenario by the interval of their mean."""
    return _by_scenario(rows, _mean_covered, _mean_relative)


# Judges the runs of one class. The arguments: the name of the goal, and one figure for each run.
_Judge = Callable[[str, Sequence[float]], Verdict]


def _by_scenario(rows: Classes, coverage: _Judge, width: _Judge) -> list[Verdict]:
    found: list[Verdict] = []
    for scenario in dict.fromkeys(runs[0].scenario for runs in rows):
        each = {runs[0].name: runs for runs in rows if runs[0].scenario == scenario}
        name = f"{scenario}: coverage"
        found.append(_worst(Verdict(name, _COVERED, OFF, None), each, _share_covered, coverage))
        name = f"{scenario}: median width"
        found.append(_worst(Verdict(name, _NARROW, WIDTH, None), each, _relative_width, width))
    return found


def _worst(
    empty: Verdict,
    rows: Mapping[str, Sequence[Coverage]],
    figure: Callable[[Coverage], float | None],
    judge: _Judge,
) -> Verdict:
    """Return the verdict on the worst class, or `empty` if no class has a figure."""
    verdicts: dict[str, Verdict] = {}
    for name, runs in rows.items():
        if values := [value for run in runs if (value := figure(run)) is not None]:
            verdicts[name] = judge(empty.name, values)
    if not verdicts:
        return replace(empty, note="no class has an estimate")
    worst = max(verdicts, key=lambda name: _badness(verdicts[name]))
    notes = [f"worst: {worst}"]
    missing = [name for name, verdict in verdicts.items() if verdict.missed]
    if len(missing) > 1:
        notes.append(f"missed by {', '.join(missing)}")
    undecided = [name for name, one in verdicts.items() if not one.met and not one.missed]
    if undecided and undecided != [worst]:
        notes.append(f"open for {', '.join(undecided)}")
    few = [name for name, runs in rows.items() if sum(run.estimated for run in runs) < LEAST]
    if few:
        notes.append(f"fewer than {LEAST} estimates: {', '.join(few)}")
    return replace(verdicts[worst], note="; ".join(notes))


def _badness(verdict: Verdict) -> tuple[int, float]:
    """Return a key by which a missed goal is worse than an open one, and that worse than a met
    one."""
    assert verdict.value is not None
    return 2 if verdict.missed else 0 if verdict.met else 1, verdict.value


def _share_covered(run: Coverage) -> float | None:
    return run.covered


def _relative_width(run: Coverage) -> float | None:
    return run.relative_width


def _covered(name: str, values: Sequence[float]) -> Verdict:
    (covered,) = values
    return Verdict(name, _COVERED, OFF, abs(covered - COVERAGE), "", f"{covered:.1%}")


def _relative(name: str, values: Sequence[float]) -> Verdict:
    (relative,) = values
    return Verdict(name, _NARROW, WIDTH, relative, "", f"{relative:.2f}")


def _mean_covered(name: str, values: Sequence[float]) -> Verdict:
    return judged_distance(name, _COVERED, values, COVERAGE, OFF, "{:.1%}")


def _mean_relative(name: str, values: Sequence[float]) -> Verdict:
    return judged_mean(name, _NARROW, values, WIDTH, "{:.2f}")
