"""Builds the page of a plan: plots of forecasts and replicas, and what the command prints.

`table`: defines the columns of the table of pools.

A pool is the replicas of one type that serve one model in one region. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from router.core.text.table import Column, Table, build, plain
from router.lab.page import COLOURS, Plot, figure, from_zero, page as whole
from router.lab.plan.decision.advise import Advice, PlaceAdvice, PoolAdvice
from router.lab.plan.decision.present import planned_windows
from router.lab.plan.forecasts.backtest import BAND
from router.lab.plan.output.words import facts, findings
from router.lab.plan.planning import Planned

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def table(made: Planned) -> Table:
    """Return a table with one row for each pool. Columns without values are left out."""
    pools = made.advice.pools
    places = {one.place: one for one in made.advice.places}

    def of(pool: PoolAdvice) -> PlaceAdvice | None:
        return places.get(pool.id.place)

    def reason(pool: PoolAdvice) -> str:
        place = of(pool)
        return "moved demand" if place is None else place.binding

    def short(pool: PoolAdvice) -> float | None:
        place = of(pool)
        return None if place is None else 100.0 * place.short

    def peak(pool: PoolAdvice) -> float | None:
        place = of(pool)
        return None if place is None else place.peak

    def capacity(pool: PoolAdvice) -> float | None:
        place = of(pool)
        return None if place is None else place.capacity

    def busy(pool: PoolAdvice) -> float | None:
        place = of(pool)
        known = None if place is None else place.utilisation
        return None if known is None else 100.0 * known

    columns: list[Column[PoolAdvice]] = [
        Column("model", "model", text=lambda pool: pool.id.place.model or "(no model)")
    ]
    if any(pool.id.place.region for pool in pools):
        columns.append(Column("region", "region", text=lambda pool: pool.id.place.region))
    columns.append(Column("type", "type", text=lambda pool: pool.id.type))
    if any(pool.now is not None for pool in pools):
        columns += [
            Column("now", "now", "replicas", lambda pool: pool.now),
            Column("utilisation", "utilisation", "%", busy),
        ]
    columns.append(Column("plan", "plan", "replicas", lambda pool: pool.planned))
    if any(pool.reactive is not None for pool in pools):
        columns.append(Column("reactive", "reactive", "replicas", lambda pool: pool.reactive))
    columns += [
        Column("binding", "binding", text=reason),
        Column("peak", "peak demand", "tok/s", peak),
        Column("capacity", "capacity", "tok/s", capacity),
    ]
    if any(place.short for place in places.values()):
        columns.append(Column("short", "not served", "%", short))
    columns.append(Column("cost", "cost", "per h", lambda pool: pool.planned * pool.cost))
    return build(pools, columns)


PLACES_MAX: Final = 6  # maximum number of plots of forecasts; the highest peaks of demand are shown
POOLS_MAX: Final = 20  # maximum number of pools in the plot of the replicas
_SHOWN_S: Final = 86400.0  # seconds of the past in the plot of a forecast


def page(made: Planned, when: str) -> str:
    """Return the whole file. `when`: the date as text."""
    return whole(
        f"Capacity plan from {made.observed.source}",
        lambda: plots(made),
        [
            ("Plan", plain(table(made))),
            ("Findings", findings(made)),
            ("Basis", [f"{what}: {how}" for what, how in facts(made)]),
            ("Planned", [when] if when else ()),
        ],
    )


def plots(made: Planned) -> Iterator[Plot]:
    """Yield all plots. Needs matplotlib."""
    known = [place for place in made.advice.places if place.forecast.tested]
    for place in sorted(known, key=lambda place: -place.peak)[:PLACES_MAX]:
        title = f"Demand and forecast: {place.place}"
        yield Plot(title, _caption(place), draw_forecast(made, place))
    if made.advice.pools:
        caption = "Running now, as planned, and as the reactive rule asks for."
        yield Plot("Replicas", caption, draw_replicas(made.advice))


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
    drawn = figure(3.6)
    axes = drawn.add_subplot()
    past = [(number - len(shown) + 0.5) * width_s / 3600.0 for number in range(len(shown))]
    axes.plot(
        past,
        [value / width_s for value in shown],
        color="gray",
        linestyle="-",
        marker="" if len(shown) > 1 else "o",  # A line of one point is invisible.
        label="demand",
    )
    forecast = place.forecast
    coming = [(number + 0.5) * width_s / 3600.0 for number in range(len(forecast.mean))]
    colour = COLOURS[0]
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
        color=COLOURS[1],
        linestyle="-",
        label=f"capacity at {made.types.utilisation:.0%}",
    )
    axes.axvline(0.0, color="gray", linewidth=1)
    from_zero(axes)
    axes.set_ylabel("tokens/s")
    axes.set_xlabel("hours from now")
    drawn.legend(loc="outside upper left", ncols=3, handlelength=2.6)
    return drawn


def draw_replicas(advice: Advice) -> Figure:
    """Draw the numbers of replicas of each pool, in groups of bars, ordered by place."""
    pools = sorted(advice.pools, key=lambda pool: -pool.planned * pool.cost)[:POOLS_MAX]
    pools.sort(key=lambda pool: pool.id)
    ways = [("now", "now", 6), ("plan", "planned", 0), ("reactive rule", "reactive", 1)]
    ways = [way for way in ways if any(getattr(pool, way[1]) is not None for pool in pools)]
    drawn = figure(1.2 + (0.22 * len(ways) + 0.16) * len(pools))
    axes = drawn.add_subplot()
    height = 0.8 / len(ways)
    for number, (label, of, colour) in enumerate(ways):
        rows = [row - 0.4 + height * (number + 0.5) for row in range(len(pools))]
        counts = [getattr(pool, of) or 0 for pool in pools]
        bars = axes.barh(rows, counts, 0.9 * height, color=COLOURS[colour], label=label)
        axes.bar_label(bars, list(map(str, counts)), padding=3, fontsize=8)
    names = [f"{pool.id.place}\n{pool.id.type}" for pool in pools]
    axes.set_yticks(range(len(pools)), names, fontsize=8)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_xlim(right=max(1.0, axes.get_xlim()[1] * 1.08))
    axes.locator_params(axis="x", integer=True)
    axes.set_xlabel("replicas")
    drawn.legend(loc="outside upper left", ncols=3, handlelength=1.6)
    return drawn
