"""Formats the runs as one table, and judges the goals on pairs of runs of the same window.

Pure. Must never simulate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Final

from bench.findings.found import Found
from bench.findings.intervals import LEVEL, ratio
from bench.findings.judged import judged_interval
from bench.gain.world import BASELINES, OURS, PROFILE, REPLICAS, SHARES, Contestant, Score, World
from bench.overhead.goals import Verdict
from router.core.text.table import Column, build

OVERLOAD: Final = 110  # load in % of the saturating rate, from which on OURS must be better
NOWHERE_WORSE: Final = 1.02


@dataclass(frozen=True, slots=True)
class Row:
    """The scores of one order and policy at one load, one score for each window of the trace."""

    load: int
    contestant: Contestant
    scores: Sequence[Score]

    @property
    def gain(self) -> list[float]:
        """The TDG ratio of each run, 0 to 1 (`score` defines TDG)."""
        return [score.ratio for score in self.scores]

    def attainment(self, name: str) -> list[float]:
        """The share of a class's requests within the SLO, for each run."""
        return [score.by_class[name].attainment for score in self.scores]


def found(world: World, rows: Sequence[Row], requests: int) -> Found:
    windows = len(rows[0].scores) if rows else 0
    slos = "; ".join(
        f"{name} ({SHARES[name]:.0%} of the requests, worth {slo.worth:g}): first token in "
        f"{slo.ttft_s:g} s, then {1e3 * slo.tpot_s:g} ms per token"
        for name, slo in world.slos.items()
    )
    method = (
        f"The trace `{world.name}` on {REPLICAS} replicas ({PROFILE}), {windows} windows of "
        f"{requests:,} requests, the first fifth not counted. Load: share of "
        f"{world.full_rate:.3g} requests/s, at which the fleet saturates. {slos}. TDG: worth of "
        "the tokens in time, as a share of the worth of all tokens. In SLO: first token and mean "
        "time per token in time."
    )
    return Found(
        f"Token-level gain: {world.name}",
        method,
        build(rows, columns(), group=lambda row: row.load),
        remarks=remarks(rows),
        verdicts=judge(rows),
        figures={
            "rows": [
                {
                    "load": row.load,
                    "contestant": row.contestant.name,
                    "gain": row.gain,
                    **{name: row.attainment(name) for name in SHARES},
                }
                for row in rows
            ]
        },
    )


def columns() -> list[Column[Row]]:
    def share(row: Row, name: str) -> float:
        return 100.0 * fmean(row.attainment(name))

    shown: list[Column[Row]] = [
        Column("load", "load", "%", lambda row: row.load),
        Column("contestant", "order + policy", text=lambda row: row.contestant.name),
        Column("gain", "TDG", "%", lambda row: 100.0 * fmean(row.gain), "high"),
    ]
    for name in SHARES:
        value: Callable[[Row], float | None] = partial(share, name=name)
        shown.append(Column(name, "in SLO", f"%, {name}", value, "high"))
    return shown


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Compare OURS with the best baseline at each load: TDG, and SLO attainment of each class."""
    verdicts = []
    for load in sorted({row.load for row in rows}):
        at = {row.contestant: row for row in rows if row.load == load}
        ours = at.get(OURS)
        others = [at[one] for one in BASELINES if one in at]
        if ours is None or not others:
            continue
        limit = 1.0 if load >= OVERLOAD else NOWHERE_WORSE
        best = max(others, key=lambda row: fmean(row.gain))
        verdicts.append(_verdict(f"TDG at {load} %", best, best.gain, ours.gain, limit))
        for name in SHARES:
            best = max(others, key=lambda row: fmean(row.attainment(name)))
            theirs, mine = best.attainment(name), ours.attainment(name)
            what = f"in SLO at {load} %, {name}"
            verdicts.append(_verdict(what, best, theirs, mine, NOWHERE_WORSE))
    return verdicts


def _verdict(
    what: str, best: Row, theirs: Sequence[float], ours: Sequence[float], limit: float
) -> Verdict:
    title = f"{what}: {best.contestant.name} over {OURS.name}"
    goal = f"≤ {limit:g}"
    if min(*theirs, *ours) <= 0.0:
        if fmean(ours) >= fmean(theirs):
            return Verdict(title, goal, limit, 1.0, "nothing is in time in a run")
        return Verdict(title, goal, limit, None, "nothing of ours is in time in a run")
    return judged_interval(title, goal, limit, ratio(theirs, ours), 0.0)


def remarks(rows: Sequence[Row]) -> list[str]:
    """Name the classes and loads in which another order and policy has more requests within the
    SLO.
    """
    found = [f"Intervals hold {LEVEL:.0%} of the resampled means of paired windows."]
    for row in rows:
        if row.contestant != OURS:
            continue
        for name in SHARES:
            mine = fmean(row.attainment(name))
            for other in rows:
                theirs = fmean(other.attainment(name))
                if other.load == row.load and theirs > mine + 0.02:
                    found.append(
                        f"At {row.load} %, {other.contestant.name} has {theirs:.0%} of class "
                        f"{name} in SLO, {OURS.name} {mine:.0%}."
                    )
    return found
