"""Formats the runs as one table, and judges the goals on pairs of runs with the same seed.

Pure. Must never simulate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import fmean
from typing import Final

from bench.findings.found import Found
from bench.findings.judged import judged_ratio
from bench.overhead.goals import Verdict
from bench.plan.case import Run
from bench.plan.contestants import EQUAL, EVEN, HPA, PLAN, REACTIVE, SAGESERVE, STATIC, TARGET
from bench.plan.fleet import SLO_S, Outcome
from bench.plan.rules import SAGESERVE_DOWN, SAGESERVE_UP, STABILIZATION_S, TOLERANCE
from bench.plan.traffic import PEAK, STEP_S
from bench.plan.world import THROUGHPUT
from router.core.text.table import Column, build

MARK: Final = 0.75  # 25 % fewer GPU-hours, as SageServe reports (arXiv 2502.14617)
# Goals: a contestant, another one, and the largest share of the other's GPU-hours and costs.
GOALS: Final = (
    (EQUAL, SAGESERVE, MARK),
    (PLAN, REACTIVE, MARK),
    (PLAN, STATIC, MARK),
    (PLAN, HPA, 1.0),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One controller under one kind of demand: the best parameter and its outcome, by seed."""

    world: str
    contestant: str
    knobs: Sequence[float | None]  # None if no parameter attains enough
    outcomes: Sequence[Outcome | None]

    @property
    def gpu_hours(self) -> list[float]:
        """GPU-hours with each seed; infinite if no parameter attains enough."""
        return [inf if one is None else one.gpu_hours for one in self.outcomes]

    @property
    def costs(self) -> list[float]:
        """Cost with each seed; infinite if no parameter attains enough."""
        return [inf if one is None else one.cost for one in self.outcomes]


def rows_of(runs: Iterable[Run]) -> list[Row]:
    """Return a row for each world and contestant; its seeds are in the order of the runs."""
    by_row: dict[tuple[str, str], tuple[list[float | None], list[Outcome | None]]] = {}
    for run in runs:
        for world, bests in run.by_lead.items():
            for best in bests:
                knobs, outcomes = by_row.setdefault((world, best.contestant), ([], []))
                knobs.append(best.knob)
                outcomes.append(best.outcome)
    return [Row(*names, *values) for names, values in by_row.items()]


def found(runs: Sequence[Run]) -> Found:
    rows = rows_of(runs)
    seeds = len(rows[0].outcomes) if rows else 0
    return Found(
        "GPU-hours at equal SLO attainment",
        f"A week with a daily curve, quiet weekends and spikes, after a week of history; peak of a "
        f"usual weekday {PEAK:,.0f} tokens/s, replicas with {THROUGHPUT:,.0f} tokens/s that start "
        f"in the time named; {seeds} seeds. In SLO: waits of at most {SLO_S:g} s in a fluid queue. "
        f"Every contestant decides every {STEP_S / 60.0:g} minutes, and sees the tokens that wait. "
        "Each has a knob: replicas (static), target utilisation (HPA), upper utilisation threshold "
        "(reactive: the fallback of `hedgerow plan`), utilisation limit (plan). The cheapest knob "
        f"with at least {TARGET:.0%} in SLO counts, for each seed. `{HPA}`: the rule of the "
        f"Horizontal Pod Autoscaler, with its tolerance of {TOLERANCE:.0%} and its stabilization "
        f"of {STABILIZATION_S / 60.0:g} minutes. `{SAGESERVE}`: the published thresholds, "
        f"{SAGESERVE_UP:g} and {SAGESERVE_DOWN:g}, and one start at a time, whatever it attains. "
        f"`{EQUAL}`: the knob of the plan that attains as much as that rule with the same seed, or "
        f"up to {EVEN:.2%} less. GPU-hours and costs include starting replicas. The plan uses its "
        "forecast at any error (no fallback). With two regions, each has this demand, the days of "
        "the second region begin later, a part of a region's demand may be served in the other "
        "one, and a limited number of spot replicas costs less and is reclaimed at random times.",
        build(rows, columns(rows), group=lambda row: row.world),
        verdicts=judge(rows),
        figures={
            "rows": [
                {
                    "world": row.world,
                    "contestant": row.contestant,
                    "knobs": list(row.knobs),
                    "gpu_hours": [hours if isfinite(hours) else None for hours in row.gpu_hours],
                    "costs": [cost if isfinite(cost) else None for cost in row.costs],
                    "attainment": [None if one is None else one.attainment for one in row.outcomes],
                }
                for row in rows
            ]
        },
    )


def columns(rows: Sequence[Row]) -> list[Column[Row]]:
    static = {row.world: row for row in rows if row.contestant == STATIC}

    def share(values: Sequence[float], base: Sequence[float]) -> float | None:
        mean = fmean(base)
        return 100.0 * fmean(values) / mean if 0.0 < mean < inf else None

    def knob(row: Row) -> float | None:
        known = [knob for knob in row.knobs if knob is not None]
        return fmean(known) if len(known) == len(row.knobs) else None

    def attained(row: Row) -> float | None:
        known = [one.attainment for one in row.outcomes if one is not None]
        return 100.0 * fmean(known) if known else None

    return [
        Column("world", "world", text=lambda row: row.world),
        Column("contestant", "contestant", text=lambda row: row.contestant),
        Column("knob", "knob", "mean", knob),
        Column("hours", "GPU-hours", "a week", lambda row: fmean(row.gpu_hours)),
        Column(
            "share",
            "of static",
            "%",
            lambda row: share(row.gpu_hours, static[row.world].gpu_hours),
        ),
        Column("cost", "cost", "a week", lambda row: fmean(row.costs)),
        Column(
            "cost_share",
            "of static",
            "%",
            lambda row: share(row.costs, static[row.world].costs),
        ),
        Column("attained", "in SLO", "%", attained),
    ]


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Judge the goals for each demand, for costs only if they differ from GPU-hours."""
    verdicts: list[Verdict] = []
    for world in dict.fromkeys(row.world for row in rows):
        at = {row.contestant: row for row in rows if row.world == world}
        verdicts += [
            judged_ratio(
                f"{world}: {what}, {ours} over {other}",
                f"≤ {mark:g}",
                getattr(at[ours], values),
                getattr(at[other], values),
                mark,
            )
            for what, values in (("GPU-hours", "gpu_hours"), ("cost", "costs"))
            if what == "GPU-hours" or at[STATIC].costs != at[STATIC].gpu_hours
            for ours, other, mark in GOALS
            if ours in at and other in at
        ]
    return verdicts
