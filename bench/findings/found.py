"""The result of a bench: one table with its title, method and goals.

Must never decide whether a goal is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.overhead.goals import Verdict
from router.core.text.table import Table


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one bench."""

    title: str
    method: str  # what was simulated, and what the figures mean
    table: Table
    remarks: Sequence[str] = ()  # further notes for a reader of the table
    verdicts: Sequence[Verdict] = ()
    # Figures that only the JSON output contains.
    figures: dict[str, Any] = field(default_factory=dict)

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
