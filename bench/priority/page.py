"""Formats the bench as one HTML page: tables, and plots of each class's wait under every order.

Plots need matplotlib; without matplotlib the page has no plots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bench.findings import page as findings
from bench.findings.found import Found
from bench.priority.traffic import CLASSES
from router.lab.replay.report import svg
from router.lab.replay.report.plots import Plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 0.2  # width of a bar, as a share of the distance between two orders


def page(founds: Sequence[Found]) -> str:
    """Return the whole HTML file."""
    return findings.page("Who goes next", founds, lambda: plots(founds))


def plots(founds: Sequence[Found]) -> Iterator[Plot]:
    """Yield one plot per part. Needs matplotlib."""
    with svg.style():
        shown = [found for found in founds if "rows_by_order" in found.figures]
        for number, found in enumerate(shown):
            drawn = draw(found.figures["rows_by_order"])
            caption = "p99 of the times to first token, a bar a class; logarithmic."
            name = f"orders{'abcdefgh'[number % 8]}"
            yield Plot(found.title, caption, svg.inline(drawn, name, found.title))


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """Plot the p99 TTFT by class and order."""
    figure = svg.figure(5.2, 0.42 * len(rows) + 1.2)
    axes = figure.add_subplot()
    for place, name in enumerate(CLASSES):
        shown = [(n, row["classes"].get(name, {}).get("p99")) for n, row in enumerate(rows)]
        known = [(n, p99) for n, p99 in shown if p99]
        axes.barh(
            [n + (place - 1.5) * _WIDTH for n, _ in known],
            [p99 for _, p99 in known],
            height=_WIDTH,
            color=svg.series(place),
            label=name,
        )
    axes.set_yticks(range(len(rows)), [row["order"] for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    # Matplotlib's default formatter writes powers as TeX formulas, which the page cannot show.
    axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
    axes.xaxis.set_minor_formatter(lambda seconds, _: "")
    axes.set_xlabel("TTFT p99, s")
    figure.legend(loc="outside upper left", ncols=3)
    return figure
