"""Shows the effect of the budget if every request may be hedged: p99 against extra prefill tokens.

Several budgets are simulated with the policies `adaptive` and `quantile`, which waits for a fixed
quantile of the usual time. The load is half of the saturation rate, and one attempt in twenty is
late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from bench.findings.found import Found
from bench.hedging.goals import change
from bench.hedging.simulated import world
from bench.hedging.simulated.world import Result, Task, play
from router.config.model import Hedging
from router.core.text.table import Column, build
from router.lab.simulator.scenario import Scenario

POLICIES = ("adaptive", "quantile")
BUDGETS = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.2)
QUICK = (0.0, 0.05)


@dataclass(frozen=True, slots=True)
class Point:
    policy: str
    budget: float
    result: Result

    @property
    def extra(self) -> float:
        return self.result.extra or 0.0

    @property
    def p99(self) -> float | None:
        return self.result.of(world.MOST_URGENT).ttft(0.99)


def run(
    *,
    seed: int = 1,
    jobs: int = 1,
    extent: world.Extent | None = None,
    budgets: Sequence[float] = BUDGETS,
) -> tuple[Found, list[Point]]:
    """Return the table, and the results for the plot."""
    extent = extent or world.Extent()
    scenario = world.fleet(extent.replicas)
    rate = world.saturation(scenario)
    places = [(policy, budget) for policy in POLICIES for budget in budgets]
    results = play(
        [
            all_hedgeable(
                scenario, Hedging(policy=policy, budget=budget), world.LOAD * rate, seed, extent
            )
            for policy, budget in places
        ],
        jobs,
    )
    points = [
        Point(policy, budget, result)
        for (policy, budget), result in zip(places, results, strict=True)
    ]
    found = Found(
        "What a budget buys where every request may be hedged",
        f"Load {world.LOAD:g}, 5 % late attempts; a run of {extent.measured_s:g} s for each, "
        f"all requests of the class {world.MOST_URGENT}.",
        build(points, _columns(points), group=lambda point: point.policy),
        figures={
            "points": [
                {"policy": p.policy, "budget": p.budget, "extra": p.extra, "ttft_p99_s": p.p99}
                for p in points
            ]
        },
    )
    return found, points


def all_hedgeable(
    scenario: Scenario, hedging: Hedging, rate: float, seed: int, extent: world.Extent
) -> Task:
    """Return the task of a run in which every request may be hedged."""
    return Task(
        policy=hedging.policy,
        scenario=replace(world.hedged(scenario, hedging), seed=seed),
        traffic=partial(world.traffic, rate, extent.until_s, seed, urgent=1.0),
        measure_from=extent.warm_s,
        measure_until=extent.until_s,
    )


def _columns(points: list[Point]) -> list[Column[Point]]:
    base = {p.policy: p.p99 for p in points if not p.budget}

    def gain(point: Point) -> str:
        before = base.get(point.policy)
        return "–" if not before or point.p99 is None else change(before, point.p99)

    def of(point: Point, q: float) -> float | None:
        return point.result.of(world.MOST_URGENT).ttft(q)

    return [
        Column("policy", "policy", text=lambda point: point.policy),
        Column("budget", "budget", "%", lambda point: 100.0 * point.budget),
        Column("extra", "extra tokens", "% of all", lambda point: 100.0 * point.extra),
        Column("p50", "TTFT p50", "s", partial(of, q=0.5), "low"),
        Column("p99", "p99", "s", partial(of, q=0.99), "low"),
        Column("p999", "p99.9", "s", partial(of, q=0.999), "low"),
        Column("gain", "p99 against none", text=gain),
    ]
