"""Formats a bench's results as one HTML page: plots first, then one section per result.

Uses the HTML parts of the replay report. Without matplotlib the page has no plots.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Protocol

from bench.findings.found import Found
from router.lab.replay.report import pieces
from router.lab.replay.report.plots import Plot


class Arguments(Protocol):
    """An argparse parser or argument group."""

    def add_argument(self, flag: str, /, **what: object) -> argparse.Action: ...


def add_argument(parser: Arguments) -> None:
    """Add the option for the page's path."""
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a page with plots")


def save(args: argparse.Namespace, page: Callable[[], str]) -> None:
    """Write the result of `page` if a path was given. Raises OSError."""
    path: Path | None = args.html
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(), encoding="utf-8")


def page(title: str, founds: Sequence[Found], plots: Callable[[], Iterable[Plot]]) -> str:
    """Return the whole HTML file."""
    return pieces.document(title, "", [pieces.drawn(plots), *map(_section, founds)])


def _section(found: Found) -> str:
    lines = [*found.remarks, *(f"{v.name}: {v.here}, {v.words()}" for v in found.verdicts)]
    method = f"<p>{escape(found.method)}</p>\n"
    return pieces.section(found.title, method, pieces.table(found.table), pieces.listed(lines))
