"""Finds the load from which on hedging does more harm than good, without the usual limits.

Every request may be hedged, and the rule that stops hedging in a busy pool is off (`utilisation:
1`). There are three variants: the default policy with its budget, the default policy without a
budget, and two copies of every request at once. For the third variant, queueing theory expects harm
from a load of about a third on (Vulimiri et al., CoNEXT 2013). Each variant is compared with no
hedging at the same load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.findings.found import Found
from bench.hedging.simulated import world
from bench.hedging.simulated.frontier import all_hedgeable
from bench.hedging.simulated.world import Result, play
from router.config.model import Hedging
from router.core.text.table import Column, build

LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0)
QUICK = (0.3, 0.9)
WAYS = {
    "off": Hedging(policy="off"),
    "adaptive, 5 %": Hedging(utilisation=1.0),
    "adaptive, no budget": Hedging(utilisation=1.0, budget=1.0),
    "immediate, no budget": Hedging(
        policy="immediate", options={"utilisation": 1.0}, utilisation=1.0, budget=1.0
    ),
}


@dataclass(frozen=True, slots=True)
class Point:
    """The result of one variant of hedging at one load."""

    way: str
    load: float
    result: Result
    base: Result  # the run at the same load without hedging

    def ratio(self, q: float) -> float | None:
        """The quantile `q` of the TTFT with hedging, divided by the one without hedging."""
        own, base = (one.of(world.MOST_URGENT).ttft(q) for one in (self.result, self.base))
        return own / base if own is not None and base else None

    @property
    def mean(self) -> float | None:
        own, base = (one.of(world.MOST_URGENT).mean for one in (self.result, self.base))
        return own / base if own is not None and base else None


def run(
    *,
    seed: int = 1,
    jobs: int = 1,
    extent: world.Extent | None = None,
    loads: tuple[float, ...] = LOADS,
) -> tuple[Found, list[Point]]:
    """Return the table, and the results for the plot."""
    extent = extent or world.Extent()
    scenario = world.fleet(extent.replicas)
    rate = world.saturation(scenario)
    places = [(load, way) for load in loads for way in WAYS]
    results = play(
        [all_hedgeable(scenario, WAYS[way], load * rate, seed, extent) for load, way in places],
        jobs,
    )
    at = dict(zip(places, results, strict=True))
    points = [
        Point(way, load, at[load, way], at[load, "off"]) for load, way in places if way != "off"
    ]
    found = Found(
        "Where a second copy harms",
        f"5 % late attempts, all requests of the class {world.MOST_URGENT}, no limit of "
        f"utilisation; {extent.measured_s:g} s each. Times over those without hedging at the "
        "same load.",
        build(points, _columns(), group=lambda point: point.load),
        remarks=[line for way in WAYS if way != "off" for line in _remarks(way, points)],
        figures={
            "points": [
                {
                    "way": p.way,
                    "load": p.load,
                    "extra": p.result.extra,
                    "mean": p.mean,
                    "p50": p.ratio(0.5),
                    "p99": p.ratio(0.99),
                }
                for p in points
            ]
        },
    )
    return found, points


def _columns() -> list[Column[Point]]:
    return [
        Column("load", "load", "%", lambda point: 100.0 * point.load),
        Column("way", "hedging", text=lambda point: point.way),
        Column("extra", "extra tokens", "% of all", lambda p: 100.0 * (p.result.extra or 0.0)),
        Column("mean", "TTFT mean", "× without", lambda point: point.mean, "low"),
        Column("p50", "p50", "× without", lambda point: point.ratio(0.5), "low"),
        Column("p99", "p99", "× without", lambda point: point.ratio(0.99), "low"),
    ]


def _remarks(way: str, points: Sequence[Point]) -> list[str]:
    mine = sorted((p for p in points if p.way == way), key=lambda p: p.load)
    return [
        f"{way}: {words} is worse than without {turns(mine, figure)}."
        for words, figure in (("the mean", lambda p: p.mean), ("the p99", lambda p: p.ratio(0.99)))
    ]


def turns(mine: Sequence[Point], figure: object) -> str:
    """Describe the lowest load from which on a figure stays above 1."""
    assert callable(figure)
    begins: float | None = None
    for point in mine:
        value = figure(point)
        if value is not None and value > 1.0:
            begins = point.load if begins is None else begins
        else:
            begins = None
    return "at no load of this run" if begins is None else f"from a load of {begins:g} on"
