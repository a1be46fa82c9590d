"""Formats the runs as one table, and judges the goals on pairs of runs with the same seed.

Pure. Must never simulate.

`Case`, `Run`, `Task`: the compared demands, and the task that simulates one of them with one seed.

Tasks run in parallel processes, and their results are stored, so a task has everything that
decides its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import fmean
from typing import Final, TextIO

from bench.findings.found import Found
from bench.findings.judged import judged_ratio
from bench.overhead.goals import Verdict
from bench.plan.contestants import (
    EQUAL,
    EVEN,
    HPA,
    LEADS_S,
    PLAN,
    REACTIVE,
    SAGESERVE,
    SAGESERVE_DOWN,
    SAGESERVE_UP,
    STABILIZATION_S,
    STATIC,
    TARGET,
    TOLERANCE,
    Best,
    contests,
    forecast_week,
)
from bench.plan.fleet import (
    GPU,
    PEAK,
    SLO_S,
    STEP_S,
    THROUGHPUT,
    Bursts,
    Kind,
    Outcome,
    World,
    seeded,
    with_bursts,
)
from router.core.text.table import Column, build

# The costs are the usual relation of prices. The reclaims are more frequent than those of most
# spot machines.
TWO_KINDS = (
    Kind("on-demand", least=1),
    Kind("spot", cost=0.35, most=8, reclaims_per_h=0.05),
)
LATE_H = 7.0  # hours by which the day of the second region begins later
SPILL = 0.3


@dataclass(frozen=True, slots=True)
class Case:
    """A demand. `bursts`: those of a trace, instead of the seeded ones."""

    name: str
    bursts: Bursts | None = None
    has_regions: bool = False  # whether there are two regions and two kinds of replicas

    def world(self, seed: int, lead_s: float) -> World:
        if self.has_regions:
            demands = {"eu": seeded(seed), "us": seeded(seed, "us", LATE_H)}
            return World(self.name, demands, lead_s, TWO_KINDS, SPILL, seed)
        demand = seeded(seed) if self.bursts is None else with_bursts(self.bursts, seed)
        return World(self.name, {"": demand}, lead_s, (GPU,), seed=seed)


WEEK_CASE = Case("week")
REGIONS_CASE = Case("two regions, spot", has_regions=True)


@dataclass(frozen=True, slots=True)
class Run:
    """The best of each contestant for each lead time, with one seed."""

    by_lead: dict[str, list[Best]]  # keys: name of the world


@dataclass(frozen=True, slots=True)
class Task:
    """A task of `router.lab.replay.workers`."""

    case: Case
    seed: int
    leads_s: tuple[float, ...] = LEADS_S

    @property
    def policy(self) -> str:
        """The label of the task in error messages."""
        return f"{self.case.name}, seed {self.seed}"

    @property
    def scenario(self) -> Task:
        return self

    @property
    def replicas(self) -> int:
        """Replicas for the highest demand."""
        world = self.case.world(self.seed, self.leads_s[0])
        return sum(map(world.peak, world.demands))

    def run(self, line: TextIO | None = None) -> Run:
        """Simulate all contestants; `line` is not used. Raises MissingExtra."""
        ahead = forecast_week(self.case.world(self.seed, max(self.leads_s)))
        found = {}
        for lead_s in self.leads_s:
            name = f"{self.case.name}, start {lead_s / 60.0:g} min"
            found[name] = contests(self.case.world(self.seed, lead_s), ahead)
        return Run(found)


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
