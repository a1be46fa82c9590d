"""The loads bench as one HTML page: where affinity begins to pay, as a picture.

Made of the pieces of a replay's page. Needs matplotlib for its plots, and does without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from math import isfinite

from bench.fleet.simulated.loads import DEFAULT, Point
from bench.fleet.simulated.report import Found
from router.simulator.report import html, svg
from router.simulator.report.page import CSS
from router.simulator.report.plots import Plot

DRAWN = ("kv_aware", "prefix_affinity", "weighted", "chwbl", "least_load", "random")
_NEEDED = "pip install 'hedgerow[replay]'"


def page(found: Found, points: Sequence[Point]) -> str:
    """The whole file."""
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>{escape(found.title)}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n",
            f"<header><h1>{escape(found.title)}</h1><p>{escape(found.method)}</p></header>\n",
            "<main>\n",
            html._list([*found.remarks, *(f"{v.name}: {v.words()}" for v in found.verdicts)]),
            _plots(points),
            html._section("Figures", html._table(found.table)),
            "</main>\n</body>\n</html>\n",
        ]
    )


def _plots(points: Sequence[Point]) -> str:
    if not svg.can_draw():
        return f"<p>Plots need matplotlib: <code>{escape(_NEEDED)}</code></p>\n"
    drawn = "".join(html._figure(plot) for plot in plots(points))
    return f'<div class="plots">\n{drawn}</div>\n'


def plots(points: Sequence[Point]) -> Iterator[Plot]:
    """Over the load: what is kept of the promise, and times against random choice. Needs
    matplotlib."""
    ways: list[tuple[str, str, str, str, Callable[[Point], float | None]]] = [
        (
            "goodput",
            "Goodput",
            "requests/s within the SLO",
            "Higher is better. Where the lines part, affinity begins to pay.",
            lambda point: point.goodput,
        ),
        (
            "ratio",
            "Time to first token, p90, against random choice",
            "times as soon as random",
            "Higher is better; 1 is no gain. Random's p90 over the policy's.",
            _against(points, "random"),
        ),
    ]
    with svg.style():
        for name, title, label, caption, value in ways:
            figure = svg.figure(5.2, 3.6)
            axes = figure.add_subplot()
            for number, policy in enumerate(DRAWN):
                mine = [point for point in points if point.policy == policy]
                known = [(p.load, v) for p in mine if (v := value(p)) is not None and isfinite(v)]
                if known:
                    axes.plot(
                        [load for load, _ in known],
                        [v for _, v in known],
                        color=svg.series(number),
                        linestyle="-" if policy == DEFAULT else "--",
                        marker="o",
                        markersize=3,
                        label=policy,
                    )
            if name == "ratio":
                axes.set_yscale("log")
                # The usual one writes powers as formulas, and pages have none.
                axes.yaxis.set_major_formatter(lambda times, _: f"{times:g} ×")
            else:
                axes.set_ylim(bottom=0)
            axes.set_xlabel("load, % of capacity")
            axes.set_ylabel(label)
            handles, labels = axes.get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside upper left", ncols=3, handlelength=2.6)
            yield Plot(title, caption, svg.inline(figure, name, title))


def _against(points: Sequence[Point], other: str) -> Callable[[Point], float | None]:
    base = {point.load: point.result.ttft_p90 for point in points if point.policy == other}

    def value(point: Point) -> float | None:
        own = point.result.ttft_p90
        theirs = base.get(point.load)
        return theirs / own if theirs is not None and own > 0.0 else None

    return value
