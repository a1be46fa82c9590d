"""Formats the simulated bench as one HTML page, with plots of the effect of budgets and of loads.

Plots need matplotlib; without matplotlib the page has no plots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from bench.findings import page as findings
from bench.findings.found import Found
from bench.hedging.simulated import frontier, harm
from router.lab.replay.report import svg
from router.lab.replay.report.plots import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMED = (0.01, 0.05, 0.2)  # budgets that are labelled in the plot
_DASHES = ("-", "--", ":")


def page(
    founds: Sequence[Found], budgets: Sequence[frontier.Point], loads: Sequence[harm.Point]
) -> str:
    """Return the whole HTML file."""
    return findings.page("Hedging, simulated", founds, lambda: plots(budgets, loads))


def plots(budgets: Sequence[frontier.Point], loads: Sequence[harm.Point]) -> Iterator[Plot]:
    """Create all plots. Needs matplotlib."""
    with svg.style():
        title = "What a budget buys"
        caption = (
            "Every request may be hedged, half load. Each point is a budget, some of them named; "
            "lower and further left is better."
        )
        yield Plot(title, caption, svg.inline(draw_budgets(budgets), "frontier", title))
        title = "Where a second copy harms"
        caption = "Above the line it does. Nothing stops hedging in a busy pool here."
        yield Plot(title, caption, svg.inline(draw_loads(loads), "harm", title))


def draw_budgets(points: Sequence[frontier.Point]) -> Figure:
    """Plot the p99 TTFT over the extra tokens, one curve per policy."""
    figure = svg.figure(5.2, 3.6)
    axes = figure.add_subplot()
    for number, policy in enumerate(dict.fromkeys(point.policy for point in points)):
        mine = sorted(
            (100.0 * p.extra, p.p99, p.budget)
            for p in points
            if p.policy == policy and p.p99 is not None
        )
        colour = svg.series(number)
        axes.plot(
            [extra for extra, _, _ in mine],
            [p99 for _, p99, _ in mine],
            color=colour,
            linestyle=_DASHES[number],
            marker="o",
            markersize=4,
            label=policy,
        )
        for extra, p99, budget in mine:
            if budget in NAMED:
                axes.annotate(
                    f"{budget:.0%}",
                    (extra, p99),
                    xytext=(4, 5) if number else (-3, -13),
                    textcoords="offset points",
                    color=colour,
                    fontsize=8,
                )
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("extra prefill tokens, % of all")
    axes.set_ylabel("TTFT p99, s")
    figure.legend(loc="outside upper left", ncols=3, handlelength=2.6)
    return figure


def draw_loads(points: Sequence[harm.Point]) -> Figure:
    """Plot mean and p99 TTFT, relative to no hedging, over the load; one curve per variant."""
    figure = svg.figure(5.2, 4.8)
    upper, lower = figure.subplots(2, 1, sharex=True)
    ways: list[tuple[Axes, str, Callable[[harm.Point], float | None]]] = [
        (upper, "mean TTFT, × without", lambda point: point.mean),
        (lower, "p99 TTFT, × without", lambda point: point.ratio(0.99)),
    ]
    for axes, label, value in ways:
        for number, way in enumerate(dict.fromkeys(point.way for point in points)):
            mine = [(100.0 * p.load, value(p)) for p in points if p.way == way]
            known = [(load, ratio) for load, ratio in mine if ratio is not None]
            axes.plot(
                [load for load, _ in known],
                [ratio for _, ratio in known],
                color=svg.series(number),
                linestyle=_DASHES[number],
                marker="o",
                markersize=3,
                label=way,
            )
        axes.axhline(1.0, color=svg.FAINT, linewidth=1)
        axes.set_yscale("log")
        bounds = axes.get_ylim()
        axes.set_yticks([0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0], minor=False)
        axes.set_yticks([], minor=True)
        # Matplotlib's default formatter writes powers as TeX formulas, which the page cannot show.
        axes.yaxis.set_major_formatter(lambda times, _: f"{times:g}")
        axes.set_ylim(bounds)
        axes.set_ylabel(label)
    lower.set_xlabel("load, % of saturation")
    handles, labels = upper.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=2, handlelength=2.6)
    return figure
