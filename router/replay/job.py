"""One run of a replay, from plain values: what a process of its own can be told.

Must never: print.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TextIO

from router.replay.progress import ProgressLine
from router.replay.report.run import Run
from router.replay.report.slo import Slo
from router.replay.report.summary import Summary
from router.simulator.scenario import Scenario
from router.simulator.simulation import simulate
from router.traces import Trace, open_trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A trace and how it is read."""

    path: str
    format: str | None = None
    block_tokens: int | None = None
    model: str | None = None
    spread_seed: int = 1
    limit: int | None = None
    until_s: float | None = None
    speedup: float = 1.0

    def open(self) -> Trace:
        """Raises TraceError, OSError, ValueError."""
        return open_trace(
            self.path,
            format=self.format,
            block_tokens=self.block_tokens,
            model=self.model,
            spread_seed=self.spread_seed,
            limit=self.limit,
            until_s=self.until_s,
            speedup=self.speedup,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A scenario, its traffic and what is promised to its requests."""

    policy: str  # as it was asked for
    scenario: Scenario
    source: Source
    slo: Slo

    def run(self, line: TextIO | None = None) -> Run:
        """Simulate it. `line`: who shows how far it is. Raises as `simulate` does."""
        traffic = self.source.open()
        summary = Summary(self.slo, self.scenario.replicas)
        label = f"{self.policy}, {self.scenario.replicas} replicas"
        progress = None if line is None else ProgressLine(label, traffic, forced=True, out=line)
        began = perf_counter()
        totals = simulate(self.scenario, traffic, summary, progress=progress)
        return Run(
            self.policy,
            self.scenario,
            summary,
            events=totals.events,
            policy_errors=totals.policy_errors,
            wall_s=perf_counter() - began,
        )
