"""The scenarios: five classes with equal shares of the traffic, at several loads.

The router runs with its default configuration, so its queue is enabled and the classes share the
fleet by weight. Requests of the first fifth of a run are not judged. In overload, waits grow until
the traffic ends; then they shrink, because no new requests arrive. So the traffic continues after
the last judged request, for longer than the longest wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from bench.findings.found import Found
from bench.findings.intervals import LEVEL
from bench.findings.stored import Store, show
from bench.fleet.simulated.worlds import FLEET, WARM, Measured, World
from bench.promise import coverage
from bench.promise.coverage import Coverage, Recorded, mean_columns
from router.config.model import Config
from router.core.conformal import COVERAGE
from router.core.text.table import build
from router.core.urgency import CLASSES
from router.lab.replay.workers import Refused
from router.lab.simulator.scenario import resized
from router.lab.simulator.simulation import simulate
from router.lab.simulator.workloads import Mix, Unique

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


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one scenario with one seed."""

    scenario: str
    seed: int
    classes: list[Coverage]


def measure(world: World, seed: int) -> Run:
    """Simulate a scenario and count by class. Raises the errors of `simulate`."""
    until = UNTIL if world.name == OVERLOAD else 1.0
    recorded = Recorded(world.name, WARM * world.seconds, until * world.seconds)
    simulate(world.scenario(seed), world.traffic(seed), recorded)
    return Run(world.name, seed, recorded.classes())


def run(
    name: str | None, seeds: Sequence[int], jobs: int, path: Path | None, *, is_quick: bool
) -> Found:
    """Simulate all scenarios, or only the scenario `name`. Finished runs are kept in `path`.

    Raises Refused, OSError, ValueError if the file does not contain such runs, and Broken.
    """
    count = QUICK if is_quick else REQUESTS
    chosen = [w for w in worlds(count) if name in (None, w.name)]
    if not chosen:
        raise Refused(f"unknown case {name!r}; known: {', '.join(NAMES)}")
    tasks = [Measured(world, seed, measure) for world in chosen for seed in seeds]
    return found(Store(path, Run).run(tasks, jobs, show), count)


def found(runs: Sequence[Run], count: int) -> Found:
    """Format and judge the runs. `count`: about the number of requests in one run."""
    rows = _by_class(runs)
    seeds = len({run.seed for run in runs})
    return Found(
        "Coverage and width of the estimated time to first token",
        f"{count} requests per run, {seeds} {'seed' if seeds == 1 else 'seeds'} per scenario, "
        f"{REPLICAS} replicas, default configuration; the first "
        f"{WARM:.0%} are not judged. In the scenario `{OVERLOAD}` there are twice as many, and the "
        f"last {1.0 - UNTIL:.0%} are not judged either, because waits shrink when the traffic "
        "ends. Unique prompts of 3,000 tokens in the median, equal shares of five classes. "
        "`bursts`: times between arrivals with a coefficient of variation of "
        f"{BURST_CV:g}, at 70 %. `slow replica`: at 70 %, one replica takes five times as long for "
        f"a fifth of the time. Coverage: share of TTFTs within their {COVERAGE:.0%} intervals. "
        "Range: from the 5th to the 95th percentile of the TTFTs of the class in one run. Figures "
        "are means over the seeds; `lowest` and `highest` are the coverages of single seeds. "
        "Goals are judged by the interval of the mean, which contains "
        f"{LEVEL:.0%} of the resampled means.",
        build(rows, mean_columns(), group=_scenario),
        verdicts=coverage.judge_runs(rows),
        figures={
            "runs": [
                {"seed": run.seed, "classes": [one.as_json() for one in run.classes]}
                for run in runs
            ]
        },
    )


def _by_class(runs: Sequence[Run]) -> list[list[Coverage]]:
    """Return the runs of each scenario and class."""
    rows: dict[tuple[str, str], list[Coverage]] = {}
    for run in runs:
        for one in run.classes:
            rows.setdefault((run.scenario, one.name), []).append(one)
    return list(rows.values())


def _scenario(row: Sequence[Coverage]) -> str:
    return row[0].scenario
