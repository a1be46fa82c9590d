"""One run of a replay, as a job that can be pickled, because it runs in another process.

Must never: print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TextIO

from router.lab.replay.progress import ProgressLine
from router.lab.replay.report.run import Run
from router.lab.replay.report.slo import Slo
from router.lab.replay.report.summary import Summary
from router.lab.replay.truth.judged import Half, Judged
from router.lab.simulator.outcome import Outcome
from router.lab.simulator.scenario import Scenario
from router.lab.simulator.simulation import simulate
from router.lab.traces import Trace
from router.lab.traces.closed_loop import ClosedLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A trace file and the options for reading it."""

    path: str
    block_tokens: int | None = None
    model: str | None = None
    limit: int | None = None
    until_s: float | None = None
    speedup: float = 1.0
    # A session's next request arrives after the previous answer has ended.
    closed_loop: bool = False

    def open(self) -> Trace:
        """Open the trace. Raises TraceError, OSError, ValueError."""
        return Trace(
            self.path,
            block_tokens=self.block_tokens,
            model=self.model,
            limit=self.limit,
            until_s=self.until_s,
            speedup=self.speedup,
        )

    def traffic(self) -> Trace | ClosedLoop:
        """Return the traffic for the simulated routers. Raises the errors of `open`."""
        trace = self.open()
        return ClosedLoop(trace, speedup=self.speedup) if self.closed_loop else trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run that is to be made: a scenario, the source of its traffic, and the SLO."""

    policy: str  # the label of the candidate configuration
    scenario: Scenario
    source: Source
    slo: Slo
    half: Half | None = None  # the half of the log to compare with; None: no comparison

    def run(self, line: TextIO | None = None) -> Run:
        """Run the simulation. `line`: the stream for progress. Raises the errors of `simulate`."""
        traffic = self.source.traffic()
        summary = Summary(self.slo, self.scenario.replicas)
        label = f"{self.policy}, {self.scenario.replicas} replicas"
        progress = None if line is None else ProgressLine(label, traffic, forced=True, out=line)
        began = perf_counter()
        judged = None if self.half is None else Judged(self.half)
        recorder = summary if judged is None else _Both(summary, judged)
        totals = simulate(self.scenario, traffic, recorder, progress=progress)
        return Run(
            self.policy,
            self.scenario,
            summary,
            events=totals.events,
            policy_errors=totals.policy_errors,
            judged=() if judged is None else tuple(judged.rows()),
            notes=traffic.notes() if isinstance(traffic, ClosedLoop) else {},
            wall_s=perf_counter() - began,
        )


class _Both:
    """A recorder that passes each event to a summary and to the comparison with the log."""

    def __init__(self, summary: Summary, judged: Judged) -> None:
        self._summary = summary
        self._judged = judged

    def ended(self, outcome: Outcome) -> None:
        self._summary.ended(outcome)
        self._judged.ended(outcome)

    def sampled(self, now: float, loads: Sequence[float]) -> None:
        self._summary.sampled(now, loads)
