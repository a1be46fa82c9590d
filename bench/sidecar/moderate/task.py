"""Measures one setup under one workload with one seed, with new engines and new routers."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any, TextIO

from bench.fleet.statistics import summarise
from bench.sidecar.figures import Setup
from bench.sidecar.http.stage import ask, started
from bench.sidecar.moderate.traffic import REPLICAS, Size, spec
from router.lab.overhead.processes import Orderly, Placement


@dataclass(slots=True)
class Seen:
    """The figures of one run. Times to first token are infinite if too few requests got one."""

    requests: int = 0  # due in the measured time
    mean_s: float = 0.0  # time to first token
    p99_s: float = 0.0
    hits: float = 0.0  # share of the prompt tokens that engines found in their caches
    cpu_s: float = 0.0  # CPU seconds of all processes of all routers per request of the run
    errors: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Engines:
    """The number of engines, for error messages."""

    replicas: int = REPLICAS


@dataclass(frozen=True, slots=True)
class Task:
    """One run. A stored result is reused only for a task with the same fields."""

    setup: Setup
    workload: str
    seed: int
    size: Size
    placement: Placement
    machine: str = ""  # the machine and the build of the router

    @property
    def policy(self) -> str:
        return self.setup.policy

    @property
    def scenario(self) -> Engines:
        return Engines()

    def run(self, line: TextIO | None = None) -> Seen:
        """Measure; `line` is not used. Raises PeerError and
        `router.app.emulated_fleet.FleetError`.
        """
        order: dict[str, Any] = {
            "workload": self.workload,
            "seed": self.seed,
            "warm": self.size.warm,
            "measured": self.size.measured,
        }
        with (
            Orderly("bench.sidecar.moderate.load", cpus=self.placement.others) as load,
            started(self.setup, spec(self.workload), self.placement) as (fleet, peers),
        ):
            played, used = ask(load, fleet, peers, order)
        summary = summarise(played, inf)
        return Seen(
            summary.requests,
            inf if summary.ttft_mean is None else summary.ttft_mean,
            inf if summary.ttft_p99 is None else summary.ttft_p99,
            summary.hit_rate or 0.0,
            used.routers_s / max(len(played["records"]), 1),
            sum(summary.errors.values()),
            used.problems(summary),
        )
