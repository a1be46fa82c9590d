"""The compared setups, their ratios to one router, the goals and the table. Pure.

A ratio compares a setup with one router in the run with the same seed, which has the same requests.
The judged value is the median of these ratios; the printed spread is from the lowest to the
highest. Must never judge fewer than `PAIRS_MIN` pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import isfinite
from operator import attrgetter
from statistics import fmean, median
from typing import Final, NamedTuple

from bench.findings.found import Found
from bench.findings.intervals import PAIRS_MIN
from bench.overhead.goals import Verdict
from bench.sidecar.figures import Setup
from bench.sidecar.moderate.task import Seen
from router.core.text.table import Column, build

ONE: Final = Setup(1)
SETUPS: Final = (
    ONE,
    *(Setup(2), Setup(4)),
    *(Setup(2, shares=True), Setup(4, shares=True)),
    *(Setup(1, workers=2), Setup(1, workers=4)),
)


def is_judged(setup: Setup) -> bool:
    """Whether the setup has goals: its routers or workers tell each other of their requests."""
    return setup.shares or setup.workers > 1


def words(setup: Setup) -> str:
    if setup.workers > 1:
        return f"workers: {setup.workers}"
    if setup == ONE:
        return "one router"
    return f"{setup.routers} routers, " + ("share.url" if setup.shares else "separate")


class Goal(NamedTuple):
    """A limit of the ratio of a figure to that of one router."""

    name: str
    figure: Callable[[Seen], float]
    limit: float
    is_least: bool = False  # whether the ratio must be at least the limit, not at most

    @property
    def words(self) -> str:
        return f"{'≥' if self.is_least else '≤'} {self.limit:.2f} × one router"


GOALS: Final = (
    Goal("TTFT mean", attrgetter("mean_s"), 1.10),
    Goal("TTFT p99", attrgetter("p99_s"), 1.20),
    Goal("hits", attrgetter("hits"), 0.97, is_least=True),
)


@dataclass(frozen=True, slots=True)
class Row:
    """The runs of one setup under one workload, in the order of the seeds."""

    setup: Setup
    workload: str
    runs: Sequence[Seen]


def ratios(row: Row, one: Row, goal: Goal) -> list[float]:
    """Return the figure divided by that of one router for each seed. Empty if one router has a
    figure of 0 or infinity.
    """
    pairs = [
        (goal.figure(ours), goal.figure(alone))
        for ours, alone in zip(row.runs, one.runs, strict=True)
    ]
    if not all(alone > 0.0 and isfinite(alone) for _, alone in pairs):
        return []
    return [ours / alone for ours, alone in pairs]


def text(found: Sequence[float]) -> str:
    """Format the median of ratios, and their spread if there are several."""
    if not found:
        return "-"
    spread = f" ({min(found):.2f} to {max(found):.2f})" if len(found) > 1 else ""
    return f"{median(found):.2f}{spread}"


def verdict(row: Row, one: Row, goal: Goal) -> Verdict:
    """Judge one goal. A verdict limits its value from above, so a ratio that has a lower limit is
    judged by its reciprocal.
    """
    name = f"{row.workload}, {words(row.setup)}: {goal.name}"
    found = ratios(row, one, goal)
    limit = 1.0 / goal.limit if goal.is_least else goal.limit
    if len(found) < PAIRS_MIN:
        note = f"pairs of runs: {len(found)}; {PAIRS_MIN} are needed"
        return Verdict(name, goal.words, limit, None, note)
    value = median(found)
    if goal.is_least:
        value = 1.0 / value if value > 0.0 else float("inf")
    errors = sum(run.errors for run in row.runs)
    note = f"{errors} failed requests" if errors else ""
    return Verdict(name, goal.words, limit, value, note, text(found))


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Return a verdict on each goal. `rows` has one router under each workload."""
    alone = {row.workload: row for row in rows if row.setup == ONE}
    return [
        verdict(row, alone[row.workload], goal)
        for row in rows
        if is_judged(row.setup)
        for goal in GOALS
    ]


def found(title: str, method: str, rows: Sequence[Row]) -> Found:
    """Return the table of all rows, with its goals. `rows` has one router under each workload."""
    problems = [
        f"! {row.workload}, {words(row.setup)}: {problem}"
        for row in rows
        for run in row.runs
        for problem in run.problems
    ]
    return Found(
        title,
        method,
        build(rows, columns(rows), group=lambda row: row.workload),
        remarks=list(dict.fromkeys(problems)),
        verdicts=judge(rows),
        figures={
            "rows": [
                {
                    **asdict(row.setup),
                    "workload": row.workload,
                    "runs": [asdict(run) for run in row.runs],
                }
                for row in rows
            ]
        },
    )


def columns(rows: Sequence[Row]) -> list[Column[Row]]:
    alone = {row.workload: row for row in rows if row.setup == ONE}

    def over(row: Row, goal: Goal) -> str:
        return "" if row.setup == ONE else text(ratios(row, alone[row.workload], goal))

    return [
        Column("workload", "workload", text=lambda row: row.workload),
        Column("setup", "setup", text=lambda row: words(row.setup)),
        Column("mean", "TTFT mean", "ms", lambda row: 1e3 * fmean(r.mean_s for r in row.runs)),
        Column("p99", "p99", "ms", lambda row: 1e3 * fmean(r.p99_s for r in row.runs)),
        Column("hits", "hits", "%", lambda row: 100.0 * fmean(r.hits for r in row.runs)),
        Column("cpu", "CPU", "ms/request", lambda row: 1e3 * fmean(r.cpu_s for r in row.runs)),
        Column("errors", "errors", value=lambda row: sum(run.errors for run in row.runs)),
        *(
            Column(goal.name, f"{goal.name} over one", text=partial(over, goal=goal))
            for goal in GOALS
        ),
    ]
