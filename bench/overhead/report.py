"""Formats a run as text, Markdown or JSON: figures as rows, routers as columns, then the goals.

In the table, `!` after a figure refers to a line under *Remarks*, and `-` means not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.overhead.goals import NOISY, Verdict
from bench.overhead.parts import PARTS
from bench.overhead.row import Row


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: a figure's label, key and number of decimals."""

    label: str
    key: str
    digits: int
    part: str  # the measurement; if it had problems, the figure gets a `!`


LINES = (
    Line("CPU µs per JSON request, c=4", "json_c4_us", 1, "json_c4"),
    Line("CPU µs per JSON request, c=32", "json_c32_us", 1, "json_c32"),
    Line("requests/s, c=4", "rps_c4", 0, "json_c4"),
    Line("requests/s, c=32", "rps_c32", 0, "json_c32"),
    Line("  of one CPU in use then", "json_c32_busy", 2, "json_c32"),
    Line("  and waited for", "json_c32_waited", 2, "json_c32"),
    Line("latency added at c=1, µs (p50)", "added_us", 0, "latency"),
    Line("  its p50, µs", "latency_p50_us", 0, "latency"),
    Line("  p50 straight beside it, µs", "direct_p50_us", 0, "latency"),
    Line("  its p99, µs", "latency_p99_us", 0, "latency"),
    Line("CPU µs per 16 KB request", "json_16k_us", 1, "json_16k"),
    Line("CPU µs per 128 KB request", "json_128k_us", 1, "json_128k"),
    Line("CPU µs per token, flat out", "token_flat_us", 2, "token_flat"),
    Line("  tokens/s then", "flat_tps", 0, "token_flat"),
    Line("CPU µs per token, 256 × 50/s", "token_paced_us", 2, "token_paced"),
    Line("  share of the pace kept", "pace_kept", 3, "token_paced"),
    Line("RSS, MB", "rss_mb", 1, "rss"),
    Line("PSS, MB", "pss_mb", 1, "rss"),
    Line("KB per idle stream", "idle_stream_kb", 1, "idle_stream_kb"),
    Line("KB per idle TLS stream", "idle_tls_stream_kb", 1, "idle_tls_stream_kb"),
    Line("CPU ms per MB, 4 MB bodies", "large_ms_per_mb", 2, "large"),
    Line("  of it outside the kernel", "large_user_ms_per_mb", 2, "large"),
    Line("stream gap, ms (50/s alone)", "gap_alone_ms", 1, "cadence"),
    Line("  beside 16 MB bodies, ms", "gap_beside_ms", 1, "cadence"),
)

METHOD = (
    "Rounds over all routers on the same CPUs, in each one turn per router, the order rotating; "
    "CPU is user and system time of the router's whole process tree from /proc, after a warm-up; "
    "figures are medians of the rounds, ratios are taken within a round, and in brackets is the "
    "spread of the rounds. Added latency is the median less the median straight at an upstream in "
    "the same turn. `of one CPU in use` below 0.9 means the load, not the router, set requests/s; "
    "`waited for` is what other processes (or the router's own threads) took of its CPU."
)


@dataclass(slots=True)
class Report:
    """All results of a run."""

    machine: dict[str, Any]
    rows: list[Row]
    verdicts: list[Verdict]
    generators: str = ""  # names the load generator of each kind of load
    parts: dict[str, float] = field(default_factory=dict)  # CPU µs of parts of the router, by name

    def as_json(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "method": METHOD,
            "generators": self.generators,
            "peers": [row.as_json() for row in self.rows],
            "parts_us": self.parts,
            "goals": [{**asdict(v), "met": v.met, "verdict": v.words()} for v in self.verdicts],
        }


def _cell(row: Row, line: Line) -> str:
    value = row.figures.get(line.key)
    mark = "!" if row.problems.get(line.part) else ""
    return ("-" if value is None else f"{value:.{line.digits}f}") + mark


def _cells(rows: Sequence[Row]) -> list[list[str]]:
    table = [["", *(row.name for row in rows)], ["version", *(row.version[:14] for row in rows)]]
    table += [[line.label, *(_cell(row, line) for row in rows)] for line in LINES]
    return [cells for cells in table if set(cells[1:]) != {"-"}]


def _goal_cells(verdicts: Sequence[Verdict]) -> list[list[str]]:
    return [
        ["goal", "", "here", ""],
        *([v.name, v.goal, v.here, v.words()] for v in verdicts),
    ]


def _aligned(table: list[list[str]], left: int) -> list[str]:
    """Pad columns to their widest cell. The first `left` columns are left-aligned; lines have no
    trailing spaces.
    """
    widths = [max(len(cells[i]) for cells in table) for i in range(len(table[0]))]
    lines = []
    for cells in table:
        parts = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def _remarks(report: Report) -> list[str]:
    lines = []
    busy = max((row.figures.get("others_cpu", 0.0) for row in report.rows), default=0.0)
    if busy > NOISY:
        lines.append(
            f"! {busy:.1f} CPUs were busy with other work before the first round: this run is noisy"
        )
    for row in report.rows:
        if row.absent:
            lines.append(f"{row.name}: absent: {row.absent}")
            continue
        lines.append(f"{row.name}: {row.settings}")
        for figure, problems in row.problems.items():
            lines.append(f"! {row.name}, {figure}: {'; '.join(problems)}")
    lines += [f"{part.title}: {part.note}" for part in PARTS if part.name in report.parts]
    return lines


def _part_cells(parts: dict[str, float]) -> list[list[str]]:
    """The table of the costs of parts. Parts with a goal are also in the table of goals."""
    found = [[part.title, f"{parts[part.name]:.2f}"] for part in PARTS if part.name in parts]
    return [["part of the router, in memory", "CPU µs"], *found]


def _machine(report: Report) -> str:
    return ", ".join(f"{name} {value}" for name, value in report.machine.items())


def text(report: Report) -> str:
    measured = [row for row in report.rows if not row.absent]
    lines = [_machine(report), METHOD, report.generators, ""]
    lines += _aligned(_cells(measured), left=1)
    if report.parts:
        lines += ["", *_aligned(_part_cells(report.parts), left=1)]
    if report.verdicts:
        # Four left-aligned columns; the last one is the text of the verdict.
        lines += ["", *_aligned(_goal_cells(report.verdicts), left=4)]
    return "\n".join([*lines, "", "Remarks", *_remarks(report), ""])


def _markdown_table(table: list[list[str]], left: int) -> list[str]:
    rule = [":--" if i < left else "--:" for i in range(len(table[0]))]
    return ["| " + " | ".join(cells) + " |" for cells in (table[0], rule, *table[1:])]


def markdown(report: Report) -> str:
    measured = [row for row in report.rows if not row.absent]
    lines = [
        f"{_machine(report)}. {METHOD} {report.generators}",
        "",
        *_markdown_table(_cells(measured), left=1),
    ]
    if report.parts:
        lines += ["", *_markdown_table(_part_cells(report.parts), left=1)]
    if report.verdicts:
        lines += ["", *_markdown_table(_goal_cells(report.verdicts), left=4)]
    return "\n".join([*lines, "", *(f"- {line}" for line in _remarks(report)), ""])
