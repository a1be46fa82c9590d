"""Formats a run as text, Markdown or JSON: one table per workload, then hotspots and goals.

A figure in a table is the mean over the rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from bench.findings.intervals import LEVEL
from bench.fleet.goals import Figure, Paired, ttft_mean, ttft_p99
from bench.fleet.run import SLO_FACTOR, Row, Workload
from bench.fleet.scenarios import Outcome
from bench.overhead.goals import Verdict

METHOD = (
    "In each round one contestant after the other, each over fresh engines, all with the same "
    "script of requests at the same moments (open loop, Poisson); each round has its own scripts, "
    "and begins with another contestant. A figure is the mean over the rounds. Times to first "
    "token count from when a request was due to its first content at the client; a request without "
    "a whole answer counts as the slowest. Load is the request rate as a share of the rate at "
    "which the fleet saturates when load is spread evenly and nothing is found in a cache, by the "
    "engines' own timing model; the "
    f"SLO is {SLO_FACTOR:g} times the first token of the mean prompt on an idle engine with an "
    "empty cache. The last two columns are Hedgerow's figure over that of the row; the interval "
    f"holds {LEVEL:.0%} of the resampled rounds."
)
_HEAD = (
    *("", "version", "TTFT mean", "p50", "p90", "p95", "p99 ms", "good/s", "in SLO", "tokens/s"),
    *("hit rate", "hotspot", "preempt.", "errors", "CPU router", "engines", "load"),
    *("ours/its mean", "ours/its p99"),
)


@dataclass(slots=True)
class Report:
    """All results of a run."""

    machine: dict[str, Any]
    fleet: str
    subject: str  # name of the judged router
    workloads: list[Workload]  # the workloads of one round
    rows: list[Row]
    outcomes: list[Outcome]
    verdicts: list[Verdict]

    def as_json(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "method": METHOD,
            "fleet": self.fleet,
            "subject": self.subject,
            "workloads": [
                {
                    "name": w.name,
                    "load": w.load,
                    "rate": w.rate,
                    "cold_rate": w.cold_rate,
                    "warm_rate": w.warm_rate,
                    "slo_s": w.slo_s,
                    "seconds": w.script.until - w.script.measure_from,
                }
                for w in self.workloads
            ],
            "rows": [asdict(row) for row in self.rows],
            "hotspots": [asdict(outcome) for outcome in self.outcomes],
            "goals": [{**asdict(v), "met": v.met, "verdict": v.words()} for v in self.verdicts],
        }


def _title(workload: Workload) -> str:
    return (
        f"{workload.name}: {workload.rate:.1f} requests/s, {workload.load:.0%} of the "
        f"{workload.cold_rate:.1f} at which the cold fleet saturates (every possible cache hit: "
        f"{workload.warm_rate:.1f}); SLO {workload.slo_s * 1e3:.0f} ms; measured for "
        f"{workload.script.until - workload.script.measure_from:.1f} s"
    )


def _number(value: float | None, digits: int = 0, factor: float = 1.0) -> str:
    return "-" if value is None else f"{value * factor:.{digits}f}"


def _cells(name: str, rows: Sequence[Row], paired: Paired, subject: str) -> list[str]:
    """Return the table cells of one router. `rows` are its results, one per round."""

    def mean(figure: Figure, digits: int = 0, factor: float = 1.0) -> str:
        return _number(paired.mean(name, figure), digits, factor)

    def ours(figure: Figure) -> str:
        found = None if name == subject else paired.ratio(subject, name, figure)
        if found is None:
            return ""
        return found.text() if found.is_enough else _number(found.value, 2)

    return [
        name + ("!" if any(row.problems for row in rows) else ""),
        rows[0].version[:12],
        mean(ttft_mean, 0, 1e3),
        mean(lambda seen: seen.ttft_p50, 0, 1e3),
        mean(lambda seen: seen.ttft_p90, 0, 1e3),
        mean(lambda seen: seen.ttft_p95, 0, 1e3),
        mean(ttft_p99, 0, 1e3),
        mean(lambda seen: seen.goodput, 2),
        mean(lambda seen: seen.good_share, 1, 100) + " %",
        mean(lambda seen: seen.tokens_s),
        mean(lambda seen: seen.hit_rate, 3),
        mean(lambda seen: seen.hotspot, 2),
        mean(lambda seen: seen.preemptions, 1),
        mean(lambda seen: float(sum(seen.errors.values())), 1),
        _number(fmean(row.router_cpu for row in rows), 2),
        _number(fmean(row.engines_cpu for row in rows), 2),
        mean(lambda seen: seen.load_cpu, 2),
        ours(ttft_mean),
        ours(ttft_p99),
    ]


def _tables(report: Report) -> list[tuple[str, list[list[str]], int]]:
    """Yield each table as (title, cells, number of left-aligned columns)."""
    found: list[tuple[str, list[list[str]], int]] = []
    for workload in report.workloads:
        paired = Paired(report.rows, workload.name)
        mine = [row for row in report.rows if row.workload == workload.name and row.summary]
        cells = [
            _cells(name, [row for row in mine if row.name == name], paired, report.subject)
            for name in paired.names
        ]
        found.append((_title(workload), [list(_HEAD), *cells], 2))
    if report.outcomes:
        cells = [
            [o.name, str(o.requests), _number(o.hotspot, 2), " ".join(f"{n:g}" for n in o.shares)]
            for o in report.outcomes
        ]
        found.append(("Hotspots", [["", "requests", "hotspot", "by replica"], *cells], 1))
    if report.verdicts:
        cells = [[v.name, v.goal, v.here, v.words()] for v in report.verdicts]
        found.append(("Goals", [["goal", "", "here", ""], *cells], 4))
    return found


def _remarks(report: Report) -> list[str]:
    # Without duplicates: a router that is not measured is absent in every workload.
    lines: dict[str, None] = {}
    for row in report.rows:
        if row.absent:
            lines[f"{row.name}: not measured: {row.absent}"] = None
        else:
            lines[f"{row.name}: {row.settings}"] = None
    for row in report.rows:
        for problem in row.problems:
            lines[f"! {row.workload}, round {row.round + 1}, {row.name}: {problem}"] = None
    return list(lines)


def _machine(report: Report) -> str:
    return ", ".join(f"{name} {value}" for name, value in report.machine.items())


def aligned(table: Sequence[Sequence[str]], left: int) -> list[str]:
    """Pad columns to their widest cell. The first `left` columns are left-aligned, and lines have
    no trailing spaces.
    """
    widths = [max(len(cells[i]) for cells in table) for i in range(len(table[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for cells in table
    ]


def markdown_table(table: Sequence[Sequence[str]], left: int) -> list[str]:
    rule = [":--" if i < left else "--:" for i in range(len(table[0]))]
    return ["| " + " | ".join(cells) + " |" for cells in (table[0], rule, *table[1:])]


def text(report: Report) -> str:
    lines = [_machine(report), report.fleet, METHOD]
    for title, cells, left in _tables(report):
        lines += ["", title, *aligned(cells, left)]
    return "\n".join([*lines, "", "Remarks", *_remarks(report), ""])


def markdown(report: Report) -> str:
    lines = [f"{_machine(report)}. {report.fleet} {METHOD}"]
    for title, cells, left in _tables(report):
        lines += ["", f"**{title}**", "", *markdown_table(cells, left)]
    return "\n".join([*lines, "", *(f"- {line}" for line in _remarks(report)), ""])
