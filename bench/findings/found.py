"""The result of a bench: one table with its title, method and goals.

Must never decide whether a goal is met.

`add_arguments`, `write`, `text`: prints results as text, Markdown or JSON, one after the other,
each followed by its goals.

The same figures give the same text. Must never decide whether a goal is met.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.fleet.report import aligned, markdown_table
from bench.overhead.goals import Verdict
from router.core.text import table
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `write` reads."""
    parser.add_argument("--markdown", action="store_true", help="print Markdown tables")
    parser.add_argument(
        "--json", metavar="FILE", help="also write the results as JSON; - for standard output"
    )


def write(founds: Sequence[Found], content: Any, args: argparse.Namespace) -> None:
    """Print the results in the requested format. `content` is the content of the JSON file.

    Raises OSError.
    """
    document = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    if args.json == "-":
        sys.stdout.write(document)
        return
    print(markdown(founds) if args.markdown else text(founds), end="")
    if args.json:
        Path(args.json).write_text(document, encoding="utf-8")


def text(founds: Sequence[Found]) -> str:
    """Format the results for a terminal."""
    return "\n\n".join(map(_text, founds))


def markdown(founds: Sequence[Found]) -> str:
    """Format the results as Markdown."""
    return "\n".join(map(_markdown, founds))


def plain(founds: Sequence[Found]) -> list[dict[str, Any]]:
    """Return all results as lists and dicts that JSON can represent."""
    return [found.as_json() for found in founds]


def _text(found: Found) -> str:
    lines = [found.title, found.method, "", table.plain(found.table).rstrip("\n")]
    if found.verdicts:
        lines += ["", *aligned(_goals(found.verdicts), 4)]
    if found.remarks:
        lines += ["", *found.remarks]
    return "\n".join([*lines, ""])


def _markdown(found: Found) -> str:
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
