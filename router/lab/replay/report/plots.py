"""Draws the plots of a replay: distributions, fleet sizes, and the course of time.

A plot shows all policies, either for one setup (fleet size and routers) or for all fleet sizes. A
policy has the same colour and dash pattern in all plots. The tables have the main results too. Must
never: be necessary for understanding the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

from router.lab.page import Plot, figure, from_zero
from router.lab.replay.report.group import Bin, Group
from router.lab.replay.report.run import Replay, Run
from router.lab.replay.report.words import seconds
from router.lab.sketch import Sketch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BINS = 64  # maximum number of time intervals
_LEGEND_COLUMNS = 4


def draw(replay: Replay) -> Iterator[Plot]:
    """Yield all plots that have values. Needs matplotlib."""
    focus = replay.focus()
    runs = replay.at(focus)
    # A logarithmic axis cannot show 0.
    groups = [run.summary.all for run in runs]
    if any(of.count > of.zeros for group in groups for of in (group.ttft, group.tpot)):
        yield _distributions(runs, str(focus))
    sizes = [run for run in replay.runs if run.setup[1:] == focus[1:]]
    if len({run.scenario.replicas for run in sizes}) > 1:
        yield _by_replicas(sizes)
    if any(group.ttft.count > group.ttft.zeros for group in groups):
        yield _over_time(runs, str(focus))


def _distributions(runs: Sequence[Run], fleet: str) -> Plot:
    slo = runs[0].summary.slo
    ways: list[tuple[str, Callable[[Group], Sketch], float]] = [
        ("time to first token", lambda group: group.ttft, slo.ttft_s),
        ("time per output token", lambda group: group.tpot, slo.tpot_s),
    ]
    drawn = figure(4.0)
    panels = drawn.subplots(1, 2, sharey=True)
    for axes, (label, of, limit) in zip(panels, ways, strict=True):
        for run in runs:
            group = run.summary.all
            points = [(v, seen) for v, seen in of(group).cumulative() if v > 0.0]
            total = of(group).count + group.failed
            axes.plot(
                [value for value, _ in points[:1] + points],
                [0.0][: len(points)] + [100.0 * seen / total for _, seen in points],
                label=run.policy,
            )
        axes.set_xscale("log")
        _times(axes.xaxis)
        axes.axvline(limit, color="gray", linewidth=1)
        axes.set_xlabel(f"{label} (grey line: SLO {seconds(limit)})")
    panels[0].set_ylim(0, 101)
    panels[0].set_ylabel("% of requests at or below")
    _legend(drawn, panels[0])
    caption = (
        f"{fleet}. Further left is better. Failed requests count, so a curve may end below 100 %."
    )
    return Plot("Times to first token and per output token", caption, drawn)


def _by_replicas(runs: Sequence[Run]) -> Plot:
    drawn = figure(4.0)
    panels = drawn.subplots(1, 2)
    ways: list[tuple[str, Callable[[Run], float | None]]] = [
        ("% of requests in SLO", lambda run: 100.0 * (run.summary.all.attainment or 0.0)),
        ("goodput, requests/s", lambda run: run.summary.goodput),
    ]
    for axes, (label, value) in zip(panels, ways, strict=True):
        for policy in dict.fromkeys(run.policy for run in runs):
            mine = sorted(
                (run.scenario.replicas, _or_nan(value(run))) for run in runs if run.policy == policy
            )
            axes.plot(*zip(*mine, strict=True), marker="o", markersize=4, label=policy)
        from_zero(axes)
        axes.locator_params(axis="x", integer=True)
        axes.set_xlabel("replicas")
        axes.set_ylabel(label)
    _legend(drawn, panels[0])
    caption = "As a share of all requests, and per second. Higher is better."
    return Plot("Requests within the SLO by fleet size", caption, drawn)


def _over_time(runs: Sequence[Run], fleet: str) -> Plot:
    ways: list[tuple[str, Callable[[Bin], float | None]]] = [
        ("TTFT p50", lambda one: one.ttft.quantile(0.5)),
        ("TTFT p99", lambda one: one.ttft.quantile(0.99)),
        (
            "requests at the\nfullest replica",
            lambda one: one.load_max / one.samples if one.samples else None,
        ),
    ]
    drawn = figure(6.5)
    panels = drawn.subplots(3, 1, sharex=True)
    for axes, (label, value) in zip(panels, ways, strict=True):
        for run in runs:
            bins = run.summary.series.coarse(_BINS)
            times = [(n + 0.5) * bins.width_s for n in range(len(bins))]
            # A bin between two without values has no line, so each value has a point.
            axes.plot(times, [_or_nan(value(one)) for one in bins], marker=".", label=run.policy)
        axes.set_ylabel(label)
    for axes in panels[:2]:
        axes.set_yscale("log")
        _times(axes.yaxis)
    panels[2].set_xlabel("time of arrival, s")
    _legend(drawn, panels[0])
    caption = f"{fleet}. The times are those of answered requests. Lower is better."
    return Plot("Times to first token and load over time", caption, drawn)


def _legend(drawn: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper left", ncols=_LEGEND_COLUMNS, handlelength=3)


def _times(axis: Any) -> None:
    """Format the ticks of a logarithmic axis of seconds, such as 20 ms, 1 s, 500 s."""
    from matplotlib.ticker import LogLocator

    low, high = sorted(axis.get_data_interval())
    is_short = 0.0 < low < high < 50.0 * low
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if is_short else (1.0,)))
    axis.set_major_formatter(lambda value, _: seconds(value))
    axis.set_minor_formatter(lambda value, _: "")


def _or_nan(value: float | None) -> float:
    """Return NaN for None and infinity, so that the plot has a gap at this value."""
    return value if value is not None and isfinite(value) else nan
