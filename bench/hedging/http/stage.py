"""Measures one router in one scenario: starts engines and the router, and plays the script.

`Options`, `Results`: runs every scenario with every compared router, one after the other.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic

import msgspec

from bench.fleet import engines
from bench.fleet.contestants import Ready
from bench.fleet.run import doubts
from bench.fleet.script import Script
from bench.hedging.http import contestants, own, traffic
from bench.hedging.http.contestants import HedgerowHedging
from bench.hedging.http.figures import Figures, figures
from bench.hedging.http.traffic import HEALTHY, PEERS, SCENARIOS, Scenario, Size
from router.lab.overhead import cpu
from router.lab.overhead.processes import Orderly, Placement
from router.lab.overhead.routers import PeerError, Running, Site


@dataclass(slots=True)
class Row:
    """The result of one compared router in one scenario."""

    key: str
    name: str
    scenario: str
    version: str = "-"
    settings: str = ""
    absent: str = ""  # reason why the router was not measured
    figures: Figures | None = None
    hedges: dict[str, float] = field(default_factory=dict)  # Hedgerow's own counters of hedging
    router_cpu: float = 0.0  # CPUs that the router used on average during the script
    engines_cpu: float = 0.0
    problems: list[str] = field(default_factory=list)


class Stage:
    """Measures routers one after the other, with one load generator and on the same CPUs."""

    def __init__(
        self, spec: engines.Spec, size: traffic.Size, seed: int, placement: Placement, load: Orderly
    ) -> None:
        self.spec = spec
        self.size = size
        self._seed = seed
        self._placement = placement
        self._load = load
        self.saturation = traffic.saturation(spec)

    def script(self, scenario: Scenario) -> Script:
        """Return a scenario's script: every router gets the same requests at the same times."""
        rate = scenario.load * self.saturation
        since, until = scenario.measure_from(self.size), scenario.until(self.size)
        return traffic.script(rate, self._seed, since, until)

    def measure(self, key: str, kind: type[Ready], scenario: Scenario) -> Row:
        row = Row(key, kind.name, scenario.name, settings=kind.settings)
        try:
            with tempfile.TemporaryDirectory(prefix="hedgerow-hedging-") as name:
                folder = Path(name)
                folder.chmod(0o755)
                self._measure(kind, scenario, row, folder)
        except PeerError as error:
            row.absent = str(error)
        return row

    def _measure(self, kind: type[Ready], scenario: Scenario, row: Row, folder: Path) -> None:
        row.version = kind(Site(folder, (), self._placement)).version()
        script = self.script(scenario)
        faults = scenario.faults(script.measure_from, script.until)
        spec = replace(self.spec, more=scenario.options)
        with (
            engines.Engines(spec, self._placement.others, log=folder / "engines.log") as fleet,
            Running(kind(Site(folder, fleet.ports, self._placement))) as peer,
        ):
            before, began = self._read(peer.pid, fleet.pid), monotonic()
            told = self._load.ask(
                {
                    "script": msgspec.to_builtins(script),
                    "host": "127.0.0.1",
                    "port": peer.port,
                    "model": engines.MODEL,
                    "engines": fleet.urls,
                    "faults": [asdict(fault) for fault in faults],
                }
            )
            after, seconds = self._read(peer.pid, fleet.pid), monotonic() - began
            if peer.process is not None and (code := peer.process.poll()) is not None:
                row.problems.append(f"ended with {code} during the run")
            elif isinstance(peer, HedgerowHedging):
                row.hedges = own.hedges(peer.admin_port)
        row.figures = figures(told, script, self.size.warm)
        row.router_cpu = cpu.spent_s(before[0], after[0]) / seconds
        row.engines_cpu = cpu.spent_s(before[1], after[1]) / seconds
        row.problems += doubts(row.figures, row.router_cpu, row.engines_cpu)

    def _read(self, router: int, fleet: int) -> tuple[cpu.Reading, cpu.Reading]:
        return cpu.read(cpu.tree(router)), cpu.read([fleet])


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
