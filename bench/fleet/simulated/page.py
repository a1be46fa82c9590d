"""Formats the results of `loads` as one HTML page with plots over the load.

Uses the HTML parts of the replay report. Without matplotlib the page has no plots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isfinite

from bench.findings.found import Found
from bench.fleet.simulated.loads import DEFAULT, Point
from router.lab.replay.report import pieces, svg
from router.lab.replay.report.plots import Plot

DRAWN = ("kv_aware", "prefix_affinity", "weighted", "chwbl", "least_load", "random")


def page(found: Found, points: Sequence[Point]) -> str:
    """Return the whole HTML file."""
    remarks = [*found.remarks, *(f"{v.name}: {v.words()}" for v in found.verdicts)]
    parts = (
        pieces.listed(remarks),
        pieces.drawn(lambda: plots(points)),
        pieces.section("Figures", pieces.table(found.table)),
    )
    return pieces.document(found.title, found.method, parts)


def plots(points: Sequence[Point]) -> Iterator[Plot]:
    """Plot, over the load, the share within the SLO and the times relative to random choice.

    Needs matplotlib.
    """
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
                # Matplotlib's default formatter writes powers as TeX formulas, which the page
                # cannot show.
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
