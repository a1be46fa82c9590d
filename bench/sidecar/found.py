"""Formats the rows of one part as one table. Each row is compared with one router. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean
from typing import Final

from bench.findings.found import Found
from bench.findings.intervals import LEVEL, difference, ratio
from bench.priority.traffic import CLASSES
from bench.sidecar.figures import HIGH_S, Figures
from bench.sidecar.setups import Setup
from router.core.text.table import Column, build

_METHOD: Final = (
    "Routers: their number; each gets a part of the same requests, and they share nothing. "
    "Requests: a request comes to `any` router at random, or to a router in its tenant's `own "
    f"pods`. In SLO: first token within {HIGH_S:g} s. Jain: fairness among the tenants of class "
    "batch; 1 is equal, 0.75 is in proportion to their clients. Hits: prompt tokens found in a "
    "cache, as the engines count. The columns `over one` compare with one router of the same kind "
    f"in the same runs; the interval holds {LEVEL:.0%} of the resampled means."
)


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one setup, one for each run. Runs of all rows have the same seeds."""

    setup: Setup
    runs: Sequence[Figures]

    def mean(self, value: Callable[[Figures], float]) -> float:
        return fmean(value(one) for one in self.runs)


def found(title: str, method: str, rows: Sequence[Row]) -> Found:
    """Return the table of all rows. `rows` has one router of each kind."""
    problems = [
        f"! {row.setup.routers} routers, {row.setup.knowledge}: {problem}"
        for row in rows
        for one in row.runs
        for problem in one.problems
    ]
    return Found(
        title,
        f"{method} {_METHOD}",
        build(rows, columns(rows), group=lambda row: _kind(row.setup)),
        remarks=list(dict.fromkeys(problems)),
        figures={
            "rows": [
                {**asdict(row.setup), "runs": [asdict(one) for one in row.runs]} for row in rows
            ]
        },
    )


def columns(rows: Sequence[Row]) -> list[Column[Row]]:
    alone = {_kind(row.setup): row for row in rows if row.setup.routers == 1}
    shown: list[Column[Row]] = [
        Column("routers", "routers", text=lambda row: str(row.setup.routers)),
        Column("policy", "policy", text=lambda row: row.setup.knowledge),
        Column("dealt", "requests", text=lambda row: row.setup.dealt),
    ]
    for name in CLASSES:
        mean: Callable[[Row], float | None] = partial(_ttft, name=name, of="ttft_mean_s")
        p99: Callable[[Row], float | None] = partial(_ttft, name=name, of="ttft_p99_s")
        shown.append(Column(f"{name}_mean", "TTFT mean", f"s, {name}", mean))
        shown.append(Column(f"{name}_p99", "p99", f"s, {name}", p99))
    return [
        *shown,
        Column("slo", "in SLO", "%, high", lambda row: 100.0 * row.mean(_in_slo)),
        Column("hits", "hits", "%", lambda row: 100.0 * row.mean(_hits)),
        Column("jain", "Jain", "batch", lambda row: row.mean(_jain)),
        Column("tokens", "output", "tokens/s", lambda row: row.mean(_tokens)),
        Column("errors", "errors", "", lambda row: float(sum(one.errors for one in row.runs))),
        Column("over_high", "TTFT of high over one", text=lambda row: _over(row, alone, _high)),
        Column("over_slo", "in SLO over one, points", text=lambda row: _more(row, alone, _in_slo)),
        Column("over_hits", "hits over one, points", text=lambda row: _more(row, alone, _hits)),
        Column("over_tokens", "output over one", text=lambda row: _over(row, alone, _tokens)),
    ]


def _kind(setup: Setup) -> tuple[str, str]:
    return setup.knowledge, setup.dealt


def _ttft(row: Row, name: str, of: str) -> float:
    return fmean(getattr(one, of)[name] for one in row.runs)


def _over(row: Row, alone: dict[tuple[str, str], Row], value: Callable[[Figures], float]) -> str:
    """The figure divided by that of one router, with its interval."""
    other = alone[_kind(row.setup)]
    if other is row:
        return ""
    one = ratio([value(run) for run in row.runs], [value(run) for run in other.runs])
    return one.text() if one.is_enough else f"{one.value:.2f}"


def _more(row: Row, alone: dict[tuple[str, str], Row], value: Callable[[Figures], float]) -> str:
    """The share minus that of one router in percentage points, with its interval."""
    other = alone[_kind(row.setup)]
    if other is row:
        return ""
    one = difference(
        [100.0 * value(run) for run in row.runs], [100.0 * value(run) for run in other.runs]
    )
    return one.text(1) if one.is_enough else f"{one.value:.1f}"


def _high(run: Figures) -> float:
    return run.ttft_mean_s["high"]


def _in_slo(run: Figures) -> float:
    return run.in_slo


def _hits(run: Figures) -> float:
    return run.hit_rate


def _jain(run: Figures) -> float:
    return run.jain


def _tokens(run: Figures) -> float:
    return run.tokens_s
