"""One simulation of a bench, from plain values, and what came of it; many of them side by side.

Must never: print, or count a request that came while the fleet was still being warmed up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import TextIO, cast

from router.replay.job import Job
from router.replay.report.run import Run
from router.replay.report.slo import Slo
from router.replay.report.summary import Summary
from router.replay.workers import run_all
from router.simulator.outcome import Outcome
from router.simulator.scenario import Scenario
from router.simulator.simulation import simulate
from router.simulator.totals import Totals
from router.simulator.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Result(Run):
    """A run, with what the simulator counted: of everything, the warm-up included."""

    totals: Totals = field(kw_only=True)

    @property
    def ttft_p90(self) -> float:
        """Seconds; infinity if a tenth of the requests, or all of none, had no answer."""
        found = self.summary.all.quantile(self.summary.all.ttft, 0.9)
        return inf if found is None else found

    @property
    def kept(self) -> float:
        """Share of the requests within the SLO, 0 to 1."""
        return self.summary.all.attainment or 0.0

    @property
    def busy(self) -> float:
        """Share of the time in which a replica had something to do, in the mean."""
        engines = self.totals.engines
        seconds = self.totals.seconds * len(engines)
        return sum(engine.busy_s for engine in engines) / seconds if seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A scenario, who makes its traffic, and which requests count."""

    policy: str  # the label of the row
    scenario: Scenario
    traffic: Callable[[], Traffic]  # called where it is run; it must be picklable
    slo: Slo
    measure_from: float = 0.0  # seconds: requests that arrive before it are not counted

    def run(self, line: TextIO | None = None) -> Result:
        """Simulate it; `line` is not written to. Raises as `simulate` does."""
        summary = Summary(self.slo, self.scenario.replicas)
        began = perf_counter()
        totals = simulate(self.scenario, self.traffic(), _Window(summary, self.measure_from))
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
    """Hands on what belongs to requests that arrived in time to be counted."""

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
    """All of them, `at_once` in processes of their own; results in the order of the tasks.

    Raises as `run_all` does.
    """
    # What `run_all` needs of a job is what a task has: a policy, a scenario and `run`.
    return cast(list[Result], run_all(cast(Sequence[Job], tasks), at_once))
