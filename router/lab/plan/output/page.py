"""Builds an HTML page of a plan, with plots of the forecasts, the replicas and the costs.

It uses the elements of the page of a replay. Without matplotlib the page has no plots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from router.lab.plan.decision.advice import Advice, PlaceAdvice
from router.lab.plan.decision.demand_ahead import planned_windows
from router.lab.plan.forecasts.backtest import BAND
from router.lab.plan.output.columns import table
from router.lab.plan.output.words import facts, findings
from router.lab.plan.planning import Planned
from router.lab.replay.report import pieces, svg
from router.lab.replay.report.plots import Plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACES_MAX: Final = 6  # maximum number of plots of forecasts; the highest peaks of demand are shown
POOLS_MAX: Final = 20  # maximum number of pools in the plot of the replicas
_SHOWN_S: Final = 86400.0  # seconds of the past in the plot of a forecast
_WIDTH_IN: Final = 5.2


def page(made: Planned, when: str) -> str:
    """Return the whole file. `when`: the date as text."""
    return pieces.document(
        f"Capacity plan from {made.observed.source}",
        f"Planned {when}" if when else "",
        [
            pieces.section("Plan", pieces.table(table(made))),
            pieces.listed(findings(made)),
            pieces.drawn(lambda: plots(made)),
            pieces.section("Basis", pieces.facts(facts(made))),
        ],
    )


def plots(made: Planned) -> Iterator[Plot]:
    """Yield all plots. Needs matplotlib."""
    advice = made.advice
    with svg.style():
        known = [place for place in advice.places if place.forecast.tested]
        ranked = sorted(known, key=lambda place: -place.peak)
        for number, place in enumerate(ranked[:PLACES_MAX]):
            title = f"Demand and forecast: {place.place}"
            name = f"forecast{chr(ord('a') + number)}"
            yield Plot(title, _caption(place), svg.inline(draw_forecast(made, place), name, title))
        if advice.pools:
            title = "Replicas"
            caption = "Running now, as planned, and as the reactive rule asks for."
            yield Plot(title, caption, svg.inline(draw_replicas(advice), "replicas", title))
            title = "Cost per hour"
            caption = "Of the replicas, without the cost of starts."
            yield Plot(title, caption, svg.inline(draw_costs(advice), "costs", title))


def _caption(place: PlaceAdvice) -> str:
    forecast = place.forecast
    error = "unknown" if forecast.error is None else f"{forecast.error:.0%}"
    used = f"{forecast.method or 'no method'}, error {error} on held-out windows"
    if forecast.distrust:
        used += "; not used, the reactive rule decides"
    return (
        f"Prompt and output tokens. {used}. The band has {2 * BAND - 1:.0%} of the held-out values."
    )


def draw_forecast(made: Planned, place: PlaceAdvice) -> Figure:
    """Draw the past demand, the forecast with its band, and the capacity of the plan."""
    width_s = made.observed.window_s
    values = made.observed.demand[place.place].tokens
    shown = values[-max(2, int(_SHOWN_S / width_s)) :]
    figure = svg.figure(_WIDTH_IN, 3.4)
    axes = figure.add_subplot()
    past = [(number - len(shown) + 0.5) * width_s / 3600.0 for number in range(len(shown))]
    axes.plot(past, [value / width_s for value in shown], color=svg.series(6), label="demand")
    forecast = place.forecast
    coming = [(number + 0.5) * width_s / 3600.0 for number in range(len(forecast.mean))]
    colour = svg.series(0)
    axes.plot(
        coming,
        [value / width_s for value in forecast.mean],
        color=colour,
        linestyle=(0, (6, 2)),
        label="forecast",
    )
    axes.fill_between(
        coming,
        [value / width_s for value in forecast.low],
        [value / width_s for value in forecast.high],
        color=colour,
        alpha=0.3,
        linewidth=0,
    )
    # The plan must serve these windows; the next plan is made for the windows after them.
    planned = planned_windows(made.types, width_s)
    axes.plot(
        [0.0, planned * width_s / 3600.0],
        [place.capacity] * 2,
        color=svg.series(1),
        label=f"capacity at {made.types.utilisation:.0%}",
    )
    axes.axvline(0.0, color=svg.FAINT, linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("tokens/s")
    axes.set_xlabel("hours from now")
    figure.legend(loc="outside upper left", ncols=3, handlelength=2.6)
    return figure


def draw_replicas(advice: Advice) -> Figure:
    """Draw the numbers of replicas of each pool, in groups of bars, ordered by place."""
    pools = sorted(advice.pools, key=lambda pool: -pool.planned * pool.cost)[:POOLS_MAX]
    pools.sort(key=lambda pool: pool.id)
    ways = [("now", "now", 6), ("plan", "planned", 0), ("reactive rule", "reactive", 1)]
    ways = [way for way in ways if any(getattr(pool, way[1]) is not None for pool in pools)]
    figure = svg.figure(_WIDTH_IN, 1.2 + (0.22 * len(ways) + 0.16) * len(pools))
    axes = figure.add_subplot()
    height = 0.8 / len(ways)
    for number, (label, of, colour) in enumerate(ways):
        rows = [row - 0.4 + height * (number + 0.5) for row in range(len(pools))]
        counts = [getattr(pool, of) or 0 for pool in pools]
        bars = axes.barh(rows, counts, 0.9 * height, color=svg.series(colour), label=label)
        axes.bar_label(bars, list(map(str, counts)), padding=3, color=svg.INK, fontsize=8)
    names = [f"{pool.id.place}\n{pool.id.type}" for pool in pools]
    axes.set_yticks(range(len(pools)), names, color=svg.INK, fontsize=8)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_xlim(right=max(1.0, axes.get_xlim()[1] * 1.08))
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("replicas")
    figure.legend(loc="outside upper left", ncols=3, handlelength=1.6)
    return figure


def draw_costs(advice: Advice) -> Figure:
    """Draw the cost per hour of the present replicas, the plan and the reactive rule."""
    known = [
        (label, cost, colour)
        for label, of, colour in (
            ("now", "now", 6),
            ("plan", "planned", 0),
            ("reactive rule", "reactive", 1),
        )
        if (cost := advice.cost(of)) is not None
    ]
    figure = svg.figure(_WIDTH_IN, 0.9 + 0.4 * len(known))
    axes = figure.add_subplot()
    bars = axes.barh(
        range(len(known)),
        [cost for _, cost, _ in known],
        0.62,
        color=[svg.series(colour) for _, _, colour in known],
    )
    axes.bar_label(bars, [f"{cost:,.2f}" for _, cost, _ in known], padding=4, color=svg.INK)
    axes.set_yticks(range(len(known)), [label for label, _, _ in known], color=svg.INK)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_xlim(right=max(0.1, axes.get_xlim()[1] * 1.15))
    axes.set_xlabel("cost per hour")
    return figure
