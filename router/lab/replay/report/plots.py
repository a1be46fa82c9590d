"""Draws the plots of a replay; each plot is a matplotlib figure for a narrow column of the page.

A plot shows all policies, either for one setup (fleet size and routers) or for all fleet sizes. A
policy has the same colour and dash pattern in all plots. The tables have the main results too. Must
never: be necessary for understanding the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isfinite, log10
from typing import TYPE_CHECKING, Any, NamedTuple

from router.core.sketch import Sketch
from router.lab.replay.report import svg
from router.lab.replay.report.group import Group
from router.lab.replay.report.run import Replay, Run, Setup
from router.lab.replay.report.words import seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH_IN = 5.2
_LINE = 68  # characters of a legend that fit into the width of a plot
_DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))
_BINS = 64  # maximum number of time intervals; more would be unreadable in a narrow column
_PANELS_MAX = 6  # maximum number of policies in the plot of the load


class Plot(NamedTuple):
    title: str
    caption: str
    svg: str


class _Marks:
    """The colour and the dash pattern of each policy."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._numbers = {p: n for n, p in enumerate(dict.fromkeys(run.policy for run in runs))}

    def colour(self, run: Run) -> str:
        return svg.series(self._numbers[run.policy])

    def of(self, run: Run) -> dict[str, Any]:
        number = self._numbers[run.policy]
        return {
            "color": svg.series(number),
            "linestyle": _DASHES[number % len(_DASHES)],
            "label": run.policy,
        }


def draw(replay: Replay, focus: Setup) -> Iterator[Plot]:
    """Yield all plots that have values. Plots of one setup show `focus`."""
    runs = replay.at(focus)
    marks = _Marks(replay.runs)
    fleet = str(focus)
    with svg.style():
        yield from _distributions(runs, marks, fleet)
        yield from _by_replicas(replay, focus, marks)
        yield from _separate_state(replay, focus, marks)
        yield from _hits(runs, marks, fleet)
        yield from _ttft_over_time(runs, marks, fleet)
        yield from _load_over_time(runs, marks, fleet)


def _distributions(runs: Sequence[Run], marks: _Marks, fleet: str) -> Iterator[Plot]:
    slo = runs[0].summary.slo
    ways: list[tuple[str, str, Callable[[Group], Sketch], float]] = [
        ("ttft", "Time to first token", lambda group: group.ttft, slo.ttft_s),
        ("tpot", "Time per output token", lambda group: group.tpot, slo.tpot_s),
    ]
    for name, title, of, limit in ways:
        # A logarithmic axis cannot show 0.
        if not any(of(run.summary.all).count > of(run.summary.all).zeros for run in runs):
            continue
        figure = svg.figure(_WIDTH_IN, 3.4)
        axes = figure.add_subplot()
        for run in runs:
            group = run.summary.all
            points = [(v, seen) for v, seen in of(group).cumulative() if v > 0.0]
            total = of(group).count + group.failed
            axes.plot(
                [value for value, _ in points[:1] + points],
                [0.0][: len(points)] + [100.0 * seen / total for _, seen in points],
                **marks.of(run),
            )
        axes.set_xscale("log")
        _time_ticks(axes.xaxis)
        axes.set_ylim(0, 101)
        axes.set_ylabel("% of requests at or below")
        axes.axvline(limit, color=svg.FAINT, linewidth=1)
        axes.annotate(
            f"SLO {seconds(limit)}",
            (limit, 0.02),
            xycoords=("data", "axes fraction"),
            xytext=(3, 0),
            textcoords="offset points",
            color=svg.FAINT,
            fontsize=9,
        )
        _legend(figure, axes)
        caption = (
            f"{fleet}. Further left is better. Failed requests count, so a curve may end below "
            "100 %."
        )
        yield _done(figure, name, title, caption)


def _by_replicas(replay: Replay, focus: Setup, marks: _Marks) -> Iterator[Plot]:
    runs = [run for run in replay.runs if run.setup[1:] == focus[1:]]
    sizes = sorted({run.scenario.replicas for run in runs})
    if len(sizes) < 2:
        return
    figure = svg.figure(_WIDTH_IN, 4.6)
    upper, lower = figure.subplots(2, 1, sharex=True)
    ways: list[tuple[Axes, str, Callable[[Run], float | None]]] = [
        (upper, "% of requests in SLO", lambda run: _percent(run.summary.all.attainment)),
        (lower, "goodput, requests/s", lambda run: run.summary.goodput),
    ]
    for axes, label, value in ways:
        for first in {run.policy: run for run in runs}.values():
            mine = sorted(
                (run for run in runs if run.policy == first.policy),
                key=lambda run: run.scenario.replicas,
            )
            axes.plot(
                [run.scenario.replicas for run in mine],
                [_or_nan(value(run)) for run in mine],
                marker="o",
                markersize=4,
                **marks.of(first),
            )
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    upper.set_ylim(0, 104)
    _whole_ticks(lower, sizes)
    lower.set_xlabel("replicas")
    _legend(figure, upper)
    yield _done(
        figure,
        "sizes",
        "Requests within the SLO by fleet size",
        "As a share of all requests, and per second. Higher is better.",
    )


def _hits(runs: Sequence[Run], marks: _Marks, fleet: str) -> Iterator[Plot]:
    if not any(run.summary.all.cached_tokens for run in runs):
        return
    figure = svg.figure(_WIDTH_IN, 0.9 + 0.34 * len(runs))
    axes = figure.add_subplot()
    names = range(len(runs))
    rates = [_percent(run.summary.all.hit_rate) or 0.0 for run in runs]
    bars = axes.barh(names, rates, 0.62, color=[marks.colour(run) for run in runs])
    axes.bar_label(bars, [f"{rate:.1f}" for rate in rates], padding=4, color=svg.INK)
    _names(axes, [run.policy for run in runs])
    axes.set_xlim(0, max(rates) * 1.12)
    axes.set_xlabel("% of prompt tokens")
    yield _done(
        figure,
        "hits",
        "Prefix cache hits",
        f"{fleet}. Prompt tokens found in an engine's cache. Longer is better.",
    )


def _ttft_over_time(runs: Sequence[Run], marks: _Marks, fleet: str) -> Iterator[Plot]:
    figure = svg.figure(_WIDTH_IN, 4.6)
    panels = figure.subplots(2, 1, sharex=True)
    longest = max(run.summary.until for run in runs)
    unit, per = _time_unit(longest)
    drawn = False
    for axes, q, label in zip(panels, (0.5, 0.99), ("TTFT p50", "TTFT p99"), strict=True):
        for run in runs:
            bins = run.summary.series.coarse(_BINS)
            times = [(n + 0.5) * bins.width_s / per for n in range(len(bins))]
            values = [one.ttft.quantile(q) for one in bins]
            points = [_or_nan(value) or float("nan") for value in values]
            drawn = drawn or sum(map(isfinite, points)) > 1
            axes.plot(times, points, **marks.of(run))
        axes.set_yscale("log")
        _time_ticks(axes.yaxis)
        axes.set_ylabel(label)
    if not drawn:
        return
    panels[1].set_xlabel(f"time of arrival, {unit}")
    _legend(figure, panels[0])
    caption = f"{fleet}. Answered requests only. Lower is better."
    yield _done(figure, "waits", "Time to first token over time", caption)


def _load_over_time(runs: Sequence[Run], marks: _Marks, fleet: str) -> Iterator[Plot]:
    shown = [run for run in runs if any(one.samples for one in run.summary.series)][:_PANELS_MAX]
    if not shown or shown[0].scenario.replicas < 2:
        return
    figure = svg.figure(_WIDTH_IN, 0.6 + 1.25 * len(shown))
    panels = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    unit, per = _time_unit(max(run.summary.until for run in shown))
    for axes, run in zip(panels, shown, strict=True):
        series = run.summary.series.coarse(_BINS)
        sampled = [(n, one) for n, one in enumerate(series) if one.samples]
        times = [(n + 0.5) * series.width_s / per for n, _ in sampled]
        colour = marks.colour(run)
        axes.fill_between(
            times,
            [one.load_min / one.samples for _, one in sampled],
            [one.load_max / one.samples for _, one in sampled],
            color=colour,
            alpha=0.3,
            linewidth=0,
        )
        axes.plot(times, [one.load / one.samples for _, one in sampled], color=colour)
        axes.set_title(run.policy)
    panels[0].set_ylim(bottom=0)
    panels[-1].set_xlabel(f"time, {unit}")
    figure.supylabel("requests at a replica", color=svg.FAINT, fontsize=10)
    caption = (
        f"{fleet}. The line is the mean over the replicas, the band the range from the least to "
        "the most loaded replica. A narrow band is an even load."
    )
    yield _done(figure, "load", "Load of the replicas over time", caption)


def _separate_state(replay: Replay, focus: Setup, marks: _Marks) -> Iterator[Plot]:
    pairs = [pair for pair in replay.pairs() if pair[0].scenario.replicas == focus.replicas]
    if not pairs:
        return
    figure = svg.figure(_WIDTH_IN, 1.1 + 0.55 * len(pairs))
    axes = figure.add_subplot()
    label, q = _reached(pairs)
    for row, (separate, shared) in enumerate(pairs):
        for offset, run, hatch in ((-0.2, separate, None), (0.2, shared, "////")):
            value = _or_nan(run.summary.all.quantile(run.summary.all.ttft, q))
            bars = axes.barh(
                [row + offset],
                [value if isfinite(value) else 0.0],
                0.36,
                color="none" if hatch else marks.colour(run),
                edgecolor=marks.colour(run),
                hatch=hatch,
            )
            text = seconds(value) if isfinite(value) else "never answered"
            axes.bar_label(bars, [text], padding=4, color=svg.INK, fontsize=9)
    _names(axes, [separate.policy for separate, _ in pairs])
    axes.set_xlim(right=axes.get_xlim()[1] * 1.15)
    axes.xaxis.set_major_formatter(lambda value, _: seconds(value))
    axes.set_xlabel(label)
    fleet = focus._replace(routers=1)
    caption = (
        f"{fleet}, {focus.routers} routers. Filled: each router knows only its own requests. "
        "Hatched: the routers share all state."
    )
    yield _done(figure, "state", "Separate and shared router state", caption)


def _reached(pairs: Sequence[tuple[Run, Run]]) -> tuple[str, float]:
    """Return the highest of the quantiles p99, p90 and p50 whose TTFT is finite in every run, and
    its label.
    """
    groups = [run.summary.all for pair in pairs for run in pair]
    for label, q in (("TTFT p99", 0.99), ("TTFT p90", 0.9)):
        if all(isfinite(_or_nan(group.quantile(group.ttft, q))) for group in groups):
            return label, q
    return "TTFT p50", 0.5


def _done(figure: Figure, name: str, title: str, caption: str) -> Plot:
    return Plot(title, caption, svg.inline(figure, name, title))


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    # A legend entry needs 7 characters more than its label, for the line sample and the gaps.
    columns = max(1, _LINE // (max(map(len, labels)) + 7))
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, handlelength=2.6)


def _names(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names, color=svg.INK)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)


def _whole_ticks(axes: Axes, sizes: Sequence[int]) -> None:
    """Set the ticks of the axis: at the sizes, or at any integers if there are many sizes."""
    if len(sizes) <= 12:
        axes.set_xticks(sizes)
    else:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _time_ticks(axis: Any) -> None:
    """Format the ticks of a logarithmic axis of seconds, such as 20 ms, 1 s, 500 s."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = sorted(axis.get_data_interval())
    decades = log10(high / low) if 0.0 < low < high else 0.0
    subs = (1.0,) if decades > 1.7 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(lambda value, _: seconds(value))
    axis.set_minor_formatter(NullFormatter())


def _time_unit(longest_s: float) -> tuple[str, float]:
    for name, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if longest_s >= 2 * size:
            return name, size
    return "seconds", 1.0


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _or_nan(value: float | None) -> float:
    """Return NaN for None and infinity, so that the plot has a gap at this value."""
    return value if value is not None and isfinite(value) else float("nan")
