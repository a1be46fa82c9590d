"""The scenarios: five classes with equal shares of the traffic, at several loads.

The router runs with its default configuration, so its queue is enabled and the classes share the
fleet by weight. Requests of the first fifth of a run are not judged. In overload, waits grow until
the traffic ends; then they shrink, because no new requests arrive. So the traffic continues after
the last judged request, for longer than the longest wait.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from bench.findings.found import Found
from bench.fleet.simulated.measured import Measured
from bench.fleet.simulated.worlds import FLEET, WARM, World
from bench.promise import goals
from bench.promise.coverage import Coverage, Recorded, columns
from router.config.model import Config
from router.core.conformal import COVERAGE
from router.core.urgency import CLASSES
from router.replay.report.table import build
from router.replay.workers import Refused, run_all
from router.simulator.scenario import resized
from router.simulator.simulation import simulate
from router.simulator.workloads import Mix, Unique

REPLICAS: Final = 4
# Each class has a fifth of the requests. A class is judged if 1,000 of its requests remain after
# the warm-up.
REQUESTS, QUICK = 8000, 800
OVERLOAD: Final = "120 %"
UNTIL: Final = 0.6  # in overload, requests are judged only up to this share of the run
# Coefficient of variation of the times between arrivals of a class in the scenario `bursts`.
BURST_CV: Final = 4.0


def classes(rate: float, seconds: float, seed: int, cv: float = 1.0) -> Mix:
    """Traffic of unique prompts in five classes, each with a fifth of the rate."""
    return Mix(
        *(
            Unique(
                rate=rate / len(CLASSES),
                duration_s=seconds,
                seed=seed * len(CLASSES) + number,
                priority=name,
                cv=cv,
            )
            for number, name in enumerate(CLASSES)
        )
    )


def worlds(requests: int) -> list[World]:
    """All scenarios, each with about this number of requests (twice as many in overload)."""
    world = partial(
        World,
        unit="",
        words="",
        make=classes,
        requests=requests,
        fleet=replace(resized(FLEET, REPLICAS), config=Config()),
    )
    return [
        world(name="50 %", load=0.5),
        world(name="90 %", load=0.9),
        world(name=OVERLOAD, load=1.2, requests=2 * requests),
        world(name="bursts", load=0.7, make=partial(classes, cv=BURST_CV)),
        world(name="slow replica", load=0.7, fault=("slow", 0.4, 0.6)),
    ]


NAMES: Final = tuple(world.name for world in worlds(REQUESTS))


def measure(world: World, seed: int) -> list[Coverage]:
    """Simulate a scenario and count by class. Raises the errors of `simulate`."""
    until = UNTIL if world.name == OVERLOAD else 1.0
    recorded = Recorded(world.name, WARM * world.seconds, until * world.seconds)
    simulate(world.scenario(seed), world.traffic(seed), recorded)
    return recorded.classes()


def run(name: str | None, seed: int, jobs: int, *, is_quick: bool) -> Found:
    """Simulate all scenarios, or only the scenario `name`. Raises Refused and Broken."""
    count = QUICK if is_quick else REQUESTS
    chosen = [w for w in worlds(count) if name in (None, w.name)]
    if not chosen:
        raise Refused(f"unknown case {name!r}; known: {', '.join(NAMES)}")
    found = run_all([Measured(world, seed, measure) for world in chosen], jobs)
    rows = [row for each in found for row in each]
    return Found(
        "Coverage and width of the estimated time to first token",
        f"{count} requests per scenario, {REPLICAS} replicas, default configuration; the first "
        f"{WARM:.0%} are not judged. In the scenario `{OVERLOAD}` there are twice as many, and the "
        f"last {1.0 - UNTIL:.0%} are not judged either, because waits shrink when the traffic "
        "ends. Unique prompts of 3,000 tokens in the median, equal shares of five classes. "
        "`bursts`: times between arrivals with a coefficient of variation of "
        f"{BURST_CV:g}, at 70 %. `slow replica`: at 70 %, one replica takes five times as long for "
        f"a fifth of the time. Coverage: share of TTFTs within their {COVERAGE:.0%} intervals. "
        "Range: from the 5th to the 95th percentile of the TTFTs of the class in the scenario.",
        build(rows, columns(), group=_scenario),
        verdicts=goals.judge(rows),
        figures={"classes": [row.as_json() for row in rows]},
    )


def _scenario(row: Coverage) -> str:
    return row.scenario
