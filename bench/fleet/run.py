"""Measures one router under one workload: starts engines and the router, and plays a script."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import msgspec

from bench.fleet import capacity, engines, workloads
from bench.fleet.contestants import FleetSite, Ready
from bench.fleet.script import Script
from bench.fleet.statistics import Summary, summarise
from router.lab.overhead import cpu
from router.lab.overhead.processes import Orderly, Placement
from router.lab.overhead.routers import PeerError, Running, Site

# Requests/s of a script that only serves to estimate the workload's request lengths.
LAW_RATE = 40.0
SLO_FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class Workload:
    """A script of requests, with its load and the target for its time to first token."""

    name: str
    script: Script
    load: float  # rate of the script's requests, as a share of `cold_rate`
    rate: float  # rate of the script's requests, in requests/s
    cold_rate: float  # requests/s at which the fleet saturates without a cache hit (`capacity.py`)
    warm_rate: float  # requests/s at which the fleet saturates with every possible cache hit
    slo_s: float  # seconds; goodput counts requests whose first token arrives within this time


def prepare(
    name: str, load: float, seed: int, size: workloads.Size, spec: engines.Spec
) -> Workload:
    """Create a workload at `load` times the rate that saturates the fleet without cache hits."""
    make = workloads.WORKLOADS[name]
    engine = spec.engine()
    law = make(LAW_RATE, 0, size)
    sizes = law.sizes()
    cold = capacity.saturation(engine, spec.count, sizes)
    return Workload(
        name,
        make(load * cold, seed, size),
        load,
        load * cold,
        cold,
        capacity.saturation(engine, spec.count, sizes, law.reusable()),
        SLO_FACTOR * capacity.cold_ttft_s(engine, sizes),
    )


@dataclass(slots=True)
class Row:
    """The result of one router (or of one policy) under one workload in one round."""

    name: str
    workload: str
    round: int = 0
    version: str = "-"
    settings: str = ""
    absent: str = ""  # reason why the router was not measured
    summary: Summary | None = None
    router_cpu: float = 0.0  # CPUs that the router used on average during the script
    engines_cpu: float = 0.0
    problems: list[str] = field(default_factory=list)


class Stage:
    """Measures routers one after the other, with one load generator and on the same CPUs."""

    def __init__(self, spec: engines.Spec, placement: Placement, load: Orderly) -> None:
        self.spec = spec
        self.placement = placement
        self._load = load

    def measure(self, kind: type[Ready], workload: Workload, round: int = 0) -> Row:
        row = Row(kind.name, workload.name, round, settings=kind.settings)
        try:
            with tempfile.TemporaryDirectory(prefix="hedgerow-fleet-") as name:
                folder = Path(name)
                folder.chmod(0o755)
                self._measure(kind, workload, row, folder)
        except PeerError as error:
            row.absent = str(error)
        return row

    def _measure(self, kind: type[Ready], workload: Workload, row: Row, folder: Path) -> None:
        row.version = kind(Site(folder, (), self.placement)).version()
        log = folder / "engines.log"
        with engines.Engines(self.spec, self.placement.others, log=log, oracle=True) as fleet:
            site = FleetSite(folder, fleet.ports, self.placement, fleet.oracle)
            with Running(kind(site)) as peer:
                before, began = self._read(peer.pid, fleet.pid), monotonic()
                played = self.play(workload.script, peer.port, fleet.urls)
                after, seconds = self._read(peer.pid, fleet.pid), monotonic() - began
                if peer.process is not None and (code := peer.process.poll()) is not None:
                    row.problems.append(f"ended with {code} during the run")
        row.summary = summarise(played, workload.slo_s)
        row.router_cpu = cpu.spent_s(before[0], after[0]) / seconds
        row.engines_cpu = cpu.spent_s(before[1], after[1]) / seconds
        row.problems += problems(row)

    def play(self, script: Script, port: int, urls: list[str]) -> dict[str, Any]:
        played: dict[str, Any] = self._load.ask(
            {
                "script": msgspec.to_builtins(script),
                "host": "127.0.0.1",
                "port": port,
                "model": engines.MODEL,
                "engines": urls,
            }
        )
        return played

    def _read(self, router: int, fleet: int) -> tuple[cpu.Reading, cpu.Reading]:
        return cpu.read(cpu.tree(router) if router else []), cpu.read([fleet])


BUSY = 0.7  # share of one CPU; a process that uses more may be a bottleneck itself
LATE_S = 0.010


def problems(row: Row) -> list[str]:
    """Return the reasons why this row's figures may be wrong, as text."""
    assert row.summary is not None
    return doubts(row.summary, row.router_cpu, row.engines_cpu)


class Seen(Protocol):
    """The records of a load generator that `doubts` needs."""

    @property
    def errors(self) -> Mapping[str, int]: ...
    @property
    def load_cpu(self) -> float: ...
    @property
    def late_p99(self) -> float | None: ...


def doubts(seen: Seen, router_cpu: float, engines_cpu: float) -> list[str]:
    """Return the reasons why the figures may be wrong, as text. CPU use is in CPUs."""
    found = [f"{count} × {error}" for error, count in sorted(seen.errors.items())]
    others = seen.load_cpu + engines_cpu
    if others > BUSY:
        found.append(f"load and engines used {others:.0%} of their CPU")
    if router_cpu > BUSY:
        found.append(f"the router used {router_cpu:.0%} of a CPU")
    if seen.late_p99 is not None and seen.late_p99 > LATE_S:
        found.append(f"p99 of requests went out {seen.late_p99 * 1e3:.0f} ms late")
    return found
