"""A bench's findings as one HTML page: its plots, then a section each.

Made of the pieces of a replay's page. Needs matplotlib for its plots, and does without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from bench.findings.found import Found
from router.simulator.report import pieces
from router.simulator.report.plots import Plot


def page(title: str, founds: Sequence[Found], plots: Callable[[], Iterable[Plot]]) -> str:
    """The whole file."""
    return pieces.document(title, "", [pieces.drawn(plots), *map(_section, founds)])


def _section(found: Found) -> str:
    lines = [*found.remarks, *(f"{v.name}: {v.here}, {v.words()}" for v in found.verdicts)]
    method = f"<p>{escape(found.method)}</p>\n"
    return pieces.section(found.title, method, pieces.table(found.table), pieces.listed(lines))
