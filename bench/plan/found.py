"""Formats the runs as one table, and judges the goals on pairs of runs with the same seed.

Pure. Must never simulate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import fmean
from typing import Final

from bench.findings.found import Found
from bench.findings.judged import judged_ratio
from bench.overhead.goals import Verdict
from bench.plan.contestants import BOTH, NAMES, PLAN, REACTIVE, SAFETY, STATIC, TARGET, WINDOW_S
from bench.plan.fleet import SLO_S, Outcome
from bench.plan.traffic import PEAK
from bench.plan.world import THROUGHPUT
from router.replay.report.table import Column, build

MARK: Final = 0.75  # the goal: 25 % fewer GPU-hours, as SageServe reports (arXiv 2502.14617)


@dataclass(frozen=True, slots=True)
class Row:
    """One controller under one kind of demand: the best parameter and its outcome, by seed."""

    world: str
    contestant: str
    knobs: Sequence[float]
    outcomes: Sequence[Outcome | None]  # None if no parameter reaches the target

    @property
    def gpu_hours(self) -> list[float]:
        """GPU-hours with each seed; infinite if no parameter reaches the target."""
        return [inf if one is None else one.gpu_hours for one in self.outcomes]

    @property
    def costs(self) -> list[float]:
        """Cost with each seed; infinite if no parameter reaches the target."""
        return [inf if one is None else one.cost for one in self.outcomes]


def found(rows: Sequence[Row]) -> Found:
    seeds = len(rows[0].outcomes) if rows else 0
    return Found(
        "GPU-hours at equal SLO attainment",
        f"A week with a daily curve, quiet weekends and spikes, after a week of history; peak of a "
        f"usual weekday {PEAK:,.0f} tokens/s, replicas with {THROUGHPUT:,.0f} tokens/s that start "
        f"in the time named; {seeds} seeds. In SLO: waits of at most {SLO_S:g} s in a fluid queue. "
        f"`{BOTH}`: between two plans, the rule adds replicas above {SAFETY:.0%}. "
        f"Each contestant has a knob: replicas (static), upper utilisation threshold (reactive, "
        f"every five minutes), utilisation limit (plan, every {WINDOW_S / 60:g} minutes). The "
        f"cheapest knob among those with at least {TARGET:.0%} in SLO counts, for each seed. "
        f"GPU-hours and costs include starting replicas. The plan uses its forecast at any error "
        "(no fallback). With two regions, each has this demand, the days of the second region "
        "begin later, a part of a region's demand may be served in the other one, and a limited "
        "number of spot replicas costs less and is reclaimed at random times.",
        build(rows, columns(rows), group=lambda row: row.world),
        verdicts=judge(rows),
        figures={
            "rows": [
                {
                    "world": row.world,
                    "contestant": row.contestant,
                    "knobs": [knob if isfinite(knob) else None for knob in row.knobs],
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

    def attained(row: Row) -> float | None:
        known = [one.attainment for one in row.outcomes if one is not None]
        return 100.0 * fmean(known) if known else None

    return [
        Column("world", "world", text=lambda row: row.world),
        Column("contestant", "contestant", text=lambda row: row.contestant),
        Column("knob", "knob", "mean", lambda row: fmean(row.knobs)),
        Column("hours", "GPU-hours", "a week", lambda row: fmean(row.gpu_hours), "low"),
        Column(
            "share",
            "of static",
            "%",
            lambda row: share(row.gpu_hours, static[row.world].gpu_hours),
            "low",
        ),
        Column("cost", "cost", "a week", lambda row: fmean(row.costs), "low"),
        Column(
            "cost_share",
            "of static",
            "%",
            lambda row: share(row.costs, static[row.world].costs),
            "low",
        ),
        Column("attained", "in SLO", "%", attained),
    ]


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Compare the plan with the static fleet and with the reactive rule, for each demand."""
    verdicts: list[Verdict] = []
    for world in dict.fromkeys(row.world for row in rows):
        at = {row.contestant: row for row in rows if row.world == world}
        if set(at) >= set(NAMES):
            verdicts += [
                judged_ratio(
                    f"{world}: {what}, {ours} over {other}",
                    f"≤ {MARK:g}",
                    getattr(at[ours], values),
                    getattr(at[other], values),
                    MARK,
                )
                for what, values in (("GPU-hours", "gpu_hours"), ("cost", "costs"))
                if what == "GPU-hours" or at[STATIC].costs != at[STATIC].gpu_hours
                for ours, other in ((PLAN, STATIC), (PLAN, REACTIVE), (BOTH, REACTIVE))
            ]
    return verdicts
