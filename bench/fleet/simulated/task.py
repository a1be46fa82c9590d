"""Runs one simulation and returns its figures; runs several tasks in parallel processes.

Must never print, and never count a request that arrived during the warm-up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import TextIO

import bench.rivals  # noqa: F401  (registers the policies)
from bench.findings.stored import show
from bench.fleet.simulated import oracle
from router.lab.replay.report.run import Run
from router.lab.replay.report.slo import Slo
from router.lab.replay.report.summary import Summary
from router.lab.replay.workers import run_all
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Scenario
from router.lab.simulator.simulation import Simulation
from router.lab.simulator.totals import Totals
from router.lab.simulator.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Result(Run):
    """The figures of one simulation, and the simulator's counters, which include the warm-up."""

    totals: Totals = field(kw_only=True)

    @property
    def ttft_p90(self) -> float:
        """p90 TTFT in seconds.

        It is infinite if there were no requests, or if a tenth of them had no answer.
        """
        found = self.summary.all.quantile(self.summary.all.ttft, 0.9)
        return inf if found is None else found

    @property
    def kept(self) -> float:
        """Share of the requests within the SLO, 0 to 1."""
        return self.summary.all.attainment or 0.0

    @property
    def busy(self) -> float:
        """Share of the time in which an engine was busy, averaged over the engines."""
        engines = self.totals.engines
        seconds = self.totals.seconds * len(engines)
        return sum(engine.busy_s for engine in engines) / seconds if seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One simulation: its scenario, its traffic, and which requests are counted. Picklable."""

    policy: str  # name of the policy, which labels the table row
    scenario: Scenario
    traffic: Callable[[], Traffic]  # called in the process of the simulation; must be picklable
    slo: Slo
    measure_from: float = 0.0  # seconds; requests that arrive earlier are not counted

    def run(self, line: TextIO | None = None) -> Result:
        """Simulate the scenario; `line` is not used. Raises the errors of `Simulation`."""
        summary = Summary(self.slo, self.scenario.replicas)
        began = perf_counter()
        recorder = _Window(summary, self.measure_from)
        simulation = Simulation(self.scenario, self.traffic(), recorder)
        if self.policy == oracle.NAME:
            oracle.install(simulation)
        totals = simulation.run()
        return Result(
            self.policy,
            self.scenario,
            summary,
            events=totals.events,
            policy_errors=totals.policy_errors,
            wall_s=perf_counter() - began,
            totals=totals,
        )


class _Window:
    """Passes records of requests that arrived after the warm-up to the summary."""

    def __init__(self, summary: Summary, measure_from: float) -> None:
        self._summary = summary
        self._measure_from = measure_from

    def ended(self, outcome: Outcome) -> None:
        if outcome.arrival.at >= self._measure_from:
            self._summary.ended(outcome)

    def sampled(self, now: float, loads: Sequence[float]) -> None:
        if now >= self._measure_from:
            self._summary.sampled(now, loads)


def play(tasks: Sequence[Task], at_once: int = 1) -> list[Result]:
    """Run all tasks, up to `at_once` at a time. Results are in the order of the tasks.

    Raises the errors of `run_all`.
    """
    return run_all(tasks, at_once, finished=show)
