"""Several findings of one bench, one after the other, as text, Markdown or JSON.

Must never: judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.fleet.simulated import report
from bench.fleet.simulated.report import Found

__all__ = ["Found", "document", "markdown", "text"]


def text(founds: Sequence[Found]) -> str:
    """For a terminal."""
    return "\n\n".join(report.text(found) for found in founds)


def markdown(founds: Sequence[Found]) -> str:
    """For a document."""
    return "\n".join(report.markdown(found) for found in founds)


def document(founds: Sequence[Found]) -> list[dict[str, Any]]:
    """All of them as plain values."""
    return [found.as_json() for found in founds]
