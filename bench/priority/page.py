"""The bench as one HTML page: its tables, and how long each class waits under every order.

Made of the pieces of a replay's page. Needs matplotlib for its plots, and does without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from bench.fleet.simulated.report import Found
from bench.priority.traffic import CLASSES
from router.simulator.report import html, svg
from router.simulator.report.page import CSS
from router.simulator.report.plots import Plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NEEDED = "pip install 'hedgerow[replay]'"
_WIDTH = 0.2  # of a bar, of the distance between two orders


def page(founds: Sequence[Found]) -> str:
    """The whole file."""
    title = "Who goes next"
    sections = []
    for found in founds:
        lines = [*found.remarks, *(f"{v.name}: {v.here}, {v.words()}" for v in found.verdicts)]
        content = f"<p>{escape(found.method)}</p>\n" + html._table(found.table)
        sections.append(html._section(found.title, content + (html._list(lines) if lines else "")))
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>{title}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n",
            f"<header><h1>{title}</h1></header>\n<main>\n",
            _plots(founds),
            *sections,
            "</main>\n</body>\n</html>\n",
        ]
    )


def _plots(founds: Sequence[Found]) -> str:
    if not svg.can_draw():
        return f"<p>Plots need matplotlib: <code>{escape(_NEEDED)}</code></p>\n"
    drawn = "".join(html._figure(plot) for plot in plots(founds))
    return f'<div class="plots">\n{drawn}</div>\n'


def plots(founds: Sequence[Found]) -> Iterator[Plot]:
    """One a part. Needs matplotlib."""
    with svg.style():
        for number, found in enumerate(founds):
            drawn = draw(found.figures["rows_by_order"])
            caption = "p99 of the times to first token, a bar a class; logarithmic."
            name = f"orders{'abcdefgh'[number % 8]}"
            yield Plot(found.title, caption, svg.inline(drawn, name, found.title))


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """p99 by class and order."""
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
    # The usual one writes powers as formulas, and pages have none.
    axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
    axes.xaxis.set_minor_formatter(lambda seconds, _: "")
    axes.set_xlabel("TTFT p99, s")
    figure.legend(loc="outside upper left", ncols=3)
    return figure
