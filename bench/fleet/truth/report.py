"""Formats a comparison as a text or Markdown table."""

from __future__ import annotations

from bench.fleet.report import aligned, markdown_table
from bench.fleet.truth.rows import Range, Row, Truth
from router.core.text.table import number
from router.lab.replay.truth.judged import error_of, error_text

_HEAD = ("", "unit", "measured", "", "simulated", "", "error")
_BEYOND = "beyond HTTP"


def text(truth: Truth) -> str:
    lines = [f"{truth.title}, {truth.when}"]
    for workload, cells in _tables(truth):
        lines += ["", workload, *aligned(cells, 2)]
    return "\n".join([*lines, "", *_remarks(truth), ""])


def markdown(truth: Truth) -> str:
    lines = [f"{truth.title}, {truth.when}."]
    for workload, cells in _tables(truth):
        lines += ["", f"**{workload}**", "", *markdown_table(cells, 2)]
    return "\n".join([*lines, "", *(f"- {line}" for line in _remarks(truth)), ""])


def _tables(truth: Truth) -> list[tuple[str, list[list[str]]]]:
    found = []
    for workload in dict.fromkeys(row.workload for row in truth.rows):
        rows = [row for row in truth.rows if row.workload == workload]
        head = [*_HEAD, *([_BEYOND] if truth.offset_ms is not None else [])]
        found.append((workload, [head, *(_cells(row, truth.offset_ms) for row in rows)]))
    return found


def _cells(row: Row, offset_ms: float | None) -> list[str]:
    cells = [
        row.name,
        row.unit,
        number(row.measured),
        _range(row.measured_range),
        number(row.simulated),
        _range(row.simulated_range),
        row.error_text,
    ]
    if offset_ms is not None:
        is_late = row.name.startswith("TTFT") and row.simulated is not None
        late = row.simulated + offset_ms if is_late and row.simulated is not None else None
        cells.append(error_text(error_of(row.measured, late), row.unit) if is_late else "")
    return cells


def _range(given: Range | None) -> str:
    return "" if given is None else f"({number(given[0])}..{number(given[1])})"


def _remarks(truth: Truth) -> list[str]:
    lines = list(truth.notes)
    if truth.offset_ms is not None:
        lines.insert(
            0,
            f"HTTP's own share of a TTFT (client, router, event loops; median of single requests "
            f"on an idle fleet, measured less simulated): {truth.offset_ms:.2f} ms. "
            f"{_BEYOND!r} is the error with it added to the simulated TTFT.",
        )
    return lines
