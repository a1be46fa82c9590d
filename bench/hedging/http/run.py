"""Runs every scenario with every compared router, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.fleet import engines
from bench.hedging.http import contestants
from bench.hedging.http.scenarios import HEALTHY, PEERS, SCENARIOS, Scenario
from bench.hedging.http.stage import Row, Stage
from bench.hedging.http.traffic import Size
from router.lab.overhead.processes import Orderly, Placement

FLEET = engines.Spec(count=16, speed=8.0)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run. `contestants` names those of every scenario; None means all."""

    scenarios: tuple[str, ...] = tuple(SCENARIOS)
    contestants: tuple[str, ...] | None = None
    size: Size = field(default_factory=Size)
    seed: int = 1
    pin: bool = True


@dataclass(frozen=True, slots=True)
class Results:
    options: Options
    placement: Placement
    saturation: float  # requests/s at which the fleet saturates
    # The retry timeout of Envoy and HAProxy in seconds. None if neither was run, or if it could not
    # be measured.
    after_s: float | None
    rows: list[Row]


def run(options: Options) -> Results:
    """Run all scenarios. Raises `emulated_fleet.FleetError` if the engines do not start."""
    placement = Placement.choose(options.pin)
    wanted = list(_wanted(options))
    rows: list[Row] = []
    after_s = None
    with Orderly("bench.hedging.http.load", cpus=placement.others) as load:
        stage = Stage(FLEET, options.size, options.seed, placement, load)
        if any(key in PEERS for _, key in wanted):
            rows.append(_measure(stage, HEALTHY.contestants[0], HEALTHY, 0.0))
            seen = rows[0].figures
            after_s = seen.urgent.p95 if seen is not None else None
        for scenario, key in wanted:
            if key in PEERS and after_s is None:
                why = "what is usual on the healthy fleet could not be measured"
                rows.append(Row(key, key, scenario.name, absent=why))
            else:
                rows.append(_measure(stage, key, scenario, after_s or 0.0))
    return Results(options, placement, stage.saturation, after_s, rows)


def _wanted(options: Options) -> Iterator[tuple[Scenario, str]]:
    for name in options.scenarios:
        for key in SCENARIOS[name].contestants:
            if options.contestants is None or key in options.contestants:
                yield SCENARIOS[name], key


def _measure(stage: Stage, key: str, scenario: Scenario, after_s: float) -> Row:
    kind = contestants.KINDS[key](after_s)
    print(f"measuring {kind.name}, {scenario.name}", file=sys.stderr, flush=True)
    row = stage.measure(key, kind, scenario)
    if row.absent:
        print(f"  absent: {row.absent}", file=sys.stderr, flush=True)
    return row
