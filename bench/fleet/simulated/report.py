"""What a bench found, as text, Markdown or JSON: one table and what belongs to it, goals below.

The same figures give the same text. Must never: judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.fleet.report import aligned, markdown_table
from bench.overhead.goals import Verdict
from router.simulator.report import table
from router.simulator.report.table import Table


@dataclass(frozen=True, slots=True)
class Found:
    """One bench, done."""

    title: str
    method: str  # what was simulated, and what the figures mean
    table: Table
    remarks: Sequence[str] = ()  # what a reader of the table should know besides
    verdicts: Sequence[Verdict] = ()
    figures: dict[str, Any] = field(default_factory=dict)  # for JSON alone

    def as_json(self) -> dict[str, Any]:
        columns = self.table.columns
        return {
            "title": self.title,
            "method": self.method,
            "columns": [f"{c.title} ({c.unit})" if c.unit else c.title for c in columns],
            "rows": [[cell.text for cell in row] for row in self.table.rows],
            "remarks": list(self.remarks),
            "goals": [{**asdict(v), "met": v.met, "verdict": v.words()} for v in self.verdicts],
            **self.figures,
        }


def text(found: Found) -> str:
    """For a terminal."""
    lines = [found.title, found.method, "", table.plain(found.table).rstrip("\n")]
    if found.verdicts:
        lines += ["", *aligned(_goals(found.verdicts), 4)]
    if found.remarks:
        lines += ["", *found.remarks]
    return "\n".join([*lines, ""])


def markdown(found: Found) -> str:
    """For a document."""
    lines = [f"**{found.title}**", "", found.method, "", table.markdown(found.table)]
    if found.verdicts:
        lines += [*markdown_table(_goals(found.verdicts), 4), ""]
    lines += [f"- {remark}" for remark in found.remarks]
    return "\n".join([*lines, ""])


def _goals(verdicts: Sequence[Verdict]) -> list[list[str]]:
    return [
        ["goal", "", "here", ""],
        *([v.name, v.goal, v.here, v.words()] for v in verdicts),
    ]
