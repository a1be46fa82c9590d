"""A run as text, Markdown or JSON: one table a scenario, goals below."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bench.fleet.report import aligned, markdown_table
from bench.hedging.http.figures import Figures, Times
from bench.hedging.http.scenarios import HEALTHY, SCENARIOS
from bench.hedging.http.stage import Row
from bench.hedging.http.traffic import OTHER_PROMPT, URGENT_PROMPT, URGENT_SHARE
from bench.overhead.goals import Verdict

METHOD = (
    "One contestant after the other, each over fresh emulated engines, all with the same requests "
    "at the same moments (open loop, Poisson; streams). Class high (x-priority: high, prompts of "
    f"about {URGENT_PROMPT[0]:.0f} tokens) has {URGENT_SHARE:.0%} of all prompt tokens, the others "
    f"(about {OTHER_PROMPT[0]:.0f}) the rest; no prompt shares anything with another. Times to "
    "first token in ms, from when a request was due to its first content at the client; a request "
    "without a whole answer counts as the slowest. Copies, those cut short and extra prompt tokens "
    "are the engines' own counts. Peers ask again after the p95 of class high on the healthy fleet."
)
_HEAD = (
    *("", "version", "high p50", "p99", "worst", "before p99", "others p50", "p99"),
    *("copies", "cut short", "extra tokens", "errors", "CPU router", "engines", "load"),
)


@dataclass(slots=True)
class Report:
    """All a run found."""

    machine: dict[str, Any]
    fleet: str
    seconds: dict[str, float]
    after_s: float | None  # the peers' patience; None: no peer took part
    rows: list[Row]
    verdicts: list[Verdict]

    def as_json(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "method": METHOD,
            "fleet": self.fleet,
            "seconds": self.seconds,
            "peers_ask_again_after_s": self.after_s,
            "rows": [asdict(row) for row in self.rows],
            "goals": [{**asdict(v), "met": v.met, "verdict": v.words()} for v in self.verdicts],
        }


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value * 1e3:.0f}"


def _cells(row: Row, seen: Figures) -> list[str]:
    before: Times = seen.urgent_normal
    return [
        row.name + ("!" if row.problems else ""),
        row.version[:12],
        *(_ms(t) for t in (seen.urgent.p50, seen.urgent.p99, seen.urgent.worst)),
        _ms(before.p99) if before.requests else "",
        *(_ms(t) for t in (seen.other.p50, seen.other.p99)),
        str(seen.copies),
        str(seen.cut_short),
        f"{seen.extra_tokens:.1%}",
        str(sum(seen.errors.values())),
        *(f"{share:.2f}" for share in (row.router_cpu, row.engines_cpu, seen.load_cpu)),
    ]


def _tables(report: Report) -> list[tuple[str, list[list[str]], int]]:
    """(title, cells, columns flush left) of each."""
    found: list[tuple[str, list[list[str]], int]] = []
    for name, scenario in {HEALTHY.name: HEALTHY, **SCENARIOS}.items():
        mine = [row for row in report.rows if row.scenario == name and row.figures]
        if mine:
            seen = mine[0].figures
            assert seen is not None
            title = (
                f"{name}: {scenario.title}; load {scenario.load:g}; "
                f"{seen.urgent.requests} requests of class high, {seen.other.requests} others"
            )
            cells = [_cells(row, row.figures) for row in mine if row.figures is not None]
            found.append((title, [list(_HEAD), *cells], 2))
    if report.verdicts:
        cells = [
            [v.name, v.goal, "-" if v.value is None else f"{v.value:.2f}", v.words()]
            for v in report.verdicts
        ]
        found.append(("Goals", [["goal", "", "here", ""], *cells], 4))
    return found


def _remarks(report: Report) -> list[str]:
    lines: dict[str, None] = {}  # each once
    for row in report.rows:
        lines[f"{row.name}: {row.settings}"] = None
        if row.absent:
            lines[f"{row.scenario}, {row.name}: not measured: {row.absent}"] = None
        if row.hedges:
            words = ", ".join(f"{name} {count:g}" for name, count in row.hedges.items())
            lines[f"{row.scenario}, {row.name} says of itself: {words}"] = None
        for problem in row.problems:
            lines[f"! {row.scenario}, {row.name}: {problem}"] = None
    return list(lines)


def _preface(report: Report) -> list[str]:
    return [", ".join(f"{name} {value}" for name, value in report.machine.items()), report.fleet]


def text(report: Report) -> str:
    lines = [*_preface(report), METHOD]
    for title, cells, left in _tables(report):
        lines += ["", title, *aligned(cells, left)]
    return "\n".join([*lines, "", "Remarks", *_remarks(report), ""])


def markdown(report: Report) -> str:
    lines = [f"{'. '.join(_preface(report))} {METHOD}"]
    for title, cells, left in _tables(report):
        lines += ["", f"**{title}**", "", *markdown_table(cells, left)]
    return "\n".join([*lines, "", *(f"- {line}" for line in _remarks(report)), ""])
